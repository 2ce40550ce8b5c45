"""A picture of each code's own example, drawn when the site is built: nodes, values, the proof, or a log's lines."""

from __future__ import annotations

import html
import math
import re
import textwrap
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from code_examples import show_example

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from code_examples import Shown, ShownLog, ShownTensor

__all__ = ["draw_code", "shown_codes"]

_LABEL, _CELL, _ROW, _SHOWN, _MARGIN = 92.0, 62.0, 22.0, 6, 8.0
_WIDTH = 2 * _MARGIN + _LABEL + _SHOWN * _CELL
_TENSORS = 5  # a picture holds as many tensors (chosen); what differs is drawn first
_IMAGE, _PIXELS = 112.0, 32  # the side of a drawn image; images of more pixels a side are drawn as numbers
_LOG_WIDTH, _LETTERS, _LINE = 720.0, 98, 16.0
# What the drawings say and the catalogue of the product does not.
WORDS = {
    "reference": "参考",
    "candidate": "候选",
    "both sides": "两侧相同",
    "as stored": "文件中的值",
    "before": "之前",
    "after": "之后",
    "the log": "日志",
    "the first log": "第一份日志",
    "the second log": "第二份日志",
    "What this example computes": "这个例子的计算结果",
    "What each side gives": "各侧给出的结果",
    "The lines of the log, those that decide marked": "日志的各行，标出起决定作用的行",
}
_TRIED = re.compile(r"Tried: (.+)\. Measured: (.+), (\S+ → \S+)\.")
PATTERNS = (
    (re.compile(r"input (.+)"), r"输入 \1"),
    (re.compile(r"output (.+)"), r"输出 \1"),
    (re.compile(r"elements (\d+) to (\d+) of (\d+)"), r"共 \3 个元素中的第 \1 到 \2 个"),
    (re.compile(r"(.+) · reads (.+)"), r"\1 · 读取 \2"),
    (re.compile(r"Not shown on the machine that drew this: (.+)"), r"绘制此图的机器上看不到：\1"),
)


@cache
def shown_codes() -> dict[str, Shown]:
    """What the example of every code shows; each is run once for all languages."""
    from parityscope.catalogue import whole_catalogue

    return {code: show_example(code) for code in whole_catalogue()}


def draw_code(code: str, shown: Shown, language: str = "en") -> str:
    """The figure of a code as HTML, in one line: its drawings, the finding's own sentence, and what was tried."""
    from parityscope.report.draw_graph import draw_neighbourhood

    drawn = []
    if shown.graph is not None:
        drawn.append(draw_neighbourhood(f"{code}-graph", "the example", shown.graph))
    if shown.tensors or shown.proof or shown.layers:
        drawn.append(_draw_values(code, shown))
    drawn += [_draw_log(f"{code}-log-{place}", one, place, len(shown.logs)) for place, one in enumerate(shown.logs)]
    said = [shown.claim or f"Not shown on the machine that drew this: {shown.missing}"]
    if shown.proof:
        changed, measured, before, after = shown.proof
        said.append(f"Tried: {changed}. Measured: {measured}, {_figure(before)} → {_figure(after)}.")
    told = "".join(f"<p>{html.escape(one)}</p>" for one in said)
    figure = f'<figure class="example" markdown="0">{"".join(drawn)}<figcaption>{told}</figcaption></figure>'
    return " ".join(figure.split("\n")) if language == "en" else _in_language(figure, language)


def _in_language(figure: str, language: str) -> str:
    from parityscope.languages import translate_text

    def say(found: re.Match[str]) -> str:
        text = html.unescape(found[1])
        said = WORDS.get(text) or translate_text(text, language)
        for pattern, put in PATTERNS if said == text else ():
            said = pattern.sub(put, said) if pattern.fullmatch(said) else said
        if tried := _TRIED.fullmatch(text):
            changed, measured, rest = tried.groups()
            said = f"试验：{translate_text(changed, language)}。测得：{translate_text(measured, language)}，{rest}。"
        return f">{html.escape(said)}<"

    return re.sub(r">([^<>]+)<", say, " ".join(figure.split("\n")))


def _figure(value: float) -> str:
    from parityscope.report.words import format_figure

    return format_figure(float(value))


# --- the values of both sides ----------------------------------------------------------------------------------------


def _draw_values(code: str, shown: Shown) -> str:
    from parityscope.report import svg

    body: list[str] = []
    y = _MARGIN
    ranked = sorted(shown.tensors, key=lambda one: len(one.rows) < 2)[:_TENSORS]
    for one in [tensor for tensor in shown.tensors if any(tensor is each for each in ranked)]:
        y, parts = _draw_tensor(one, y)
        body += parts
    for name, words in shown.layers:
        body.append(svg.svg_text(_MARGIN, y + 14, name, "strong"))
        body.append(svg.svg_text(_MARGIN, y + 32, words, "small"))
        y += 46
    if shown.proof:
        y, parts = _draw_proof(shown.proof, y)
        body += parts
    said = " ".join(_describe(one) for one in ranked) or shown.claim
    return svg.svg_figure(f"{code}-values", (_WIDTH, y + _MARGIN), "What each side gives", said, body)


def _describe(tensor: ShownTensor) -> str:
    where = _window(tensor)
    rows = [f"{side} {', '.join(_figure(one) for one in array.ravel()[where])}" for side, array in tensor.rows]
    return f"{tensor.name}: {'; '.join(rows)}."


def _window(tensor: ShownTensor) -> slice:
    """The elements that are drawn, in storage order: those around the one that differs most."""
    arrays = [np.asarray(array, dtype=np.float64).ravel() for _, array in tensor.rows]
    worst = 0
    if len(arrays) > 1 and arrays[0].shape == arrays[1].shape and arrays[0].size:
        apart = _apart(*arrays)
        worst = int(np.argmax(apart))
    size = min(one.size for one in arrays)
    start = max(0, min(worst - 2, size - _SHOWN))
    return slice(start, min(start + _SHOWN, size))


def _apart(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The distance of each element over the first array's root mean square; infinite where only one side is finite."""
    finite = one[np.isfinite(one)]
    scale = float(np.sqrt(np.mean(finite**2))) if finite.size and np.any(finite) else 1.0
    with np.errstate(invalid="ignore"):
        apart = np.abs(one - other) / scale
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    return np.where(same, 0.0, np.where(np.isfinite(apart), apart, np.inf))


def _draw_tensor(tensor: ShownTensor, y: float) -> tuple[float, list[str]]:
    from parityscope.report import svg

    shape = "×".join(str(dim) for dim in tensor.rows[0][1].shape) or "1"
    images = [_image_of(array) for _, array in tensor.rows]
    body = [svg.svg_text(_MARGIN, y + 14, f"{tensor.name} [{shape}]", "strong")]
    y += 20
    if all(one is not None for one in images):
        for place, ((side, _), image) in enumerate(zip(tensor.rows, images, strict=True)):
            x = _MARGIN + place * (_IMAGE + 24)
            body += _draw_image(image, x, y)
            body.append(svg.svg_text(x, y + _IMAGE + 15, side, "small"))
        y += _IMAGE + 24
    where = _window(tensor)
    rows = [np.asarray(array, dtype=np.float64).ravel() for _, array in tensor.rows]
    even = len(rows) > 1 and rows[0].shape == rows[1].shape
    apart = _apart(*rows)[where] if even else np.zeros(where.stop - where.start)
    for (side, _), values in zip(tensor.rows, rows, strict=True):
        body.append(svg.svg_text(_MARGIN, y + 15, side, "small"))
        for place, (value, far) in enumerate(zip(values[where], apart, strict=True)):
            body += _draw_cell(_MARGIN + _LABEL + place * _CELL, y, float(value), float(far))
        y += _ROW
    if rows[0].size > _SHOWN:
        words = f"elements {where.start} to {where.stop - 1} of {rows[0].size}"
        body.append(svg.svg_text(_MARGIN + _LABEL, y + 12, words, "small"))
        y += 16
    return y + 12, body


def _draw_cell(x: float, y: float, value: float, far: float) -> Iterator[str]:
    from parityscope.report import svg
    from parityscope.report.draw_graph import shade_of_error

    shade = f"e{shade_of_error(math.nan if math.isinf(far) else far)}"
    box: dict[str, object] = {"x": x, "y": y, "width": _CELL - 2, "height": _ROW - 2, "rx": 3, "class": f"cell {shade}"}
    yield svg.svg_element("rect", box)
    yield svg.svg_text(x + (_CELL - 2) / 2, y + 15, _figure(value), "small", anchor="middle")


def _image_of(array: np.ndarray) -> np.ndarray | None:
    """A small image of three channels as [height, width, 3]; None for anything else."""
    if array.ndim != 4 or array.shape[0] != 1:
        return None
    image = np.moveaxis(array[0], 0, -1) if array.shape[1] == 3 else array[0]
    small = image.shape[-1] == 3 and min(image.shape[:2]) >= 4 and max(image.shape[:2]) <= _PIXELS
    return np.asarray(image, dtype=np.float64) if small and np.isfinite(image).all() else None


def _draw_image(image: np.ndarray, x: float, y: float) -> Iterator[str]:
    """Pixels as squares, equal neighbours in a row as one; each side from its own darkest to its own lightest value."""
    from parityscope.report import svg

    low, high = float(image.min()), float(image.max())
    levels = np.round((image - low) / ((high - low) or 1.0) * 255).astype(int)
    tall, wide = _IMAGE / image.shape[0], _IMAGE / image.shape[1]
    for row, pixels in enumerate(levels):
        column = 0
        for (red, green, blue), same in groupby(pixels.tolist()):
            count = len(list(same))
            box = {"x": x + column * wide, "y": y + row * tall, "width": count * wide + 0.3, "height": tall + 0.3}
            yield svg.svg_element("rect", {**box, "fill": f"#{red:02x}{green:02x}{blue:02x}"})
            column += count


def _draw_proof(proof: tuple[str, str, float, float], y: float) -> tuple[float, list[str]]:
    """What was measured before and after as two bars; the longer one is as wide as the cells."""
    from parityscope.report import svg

    _, measured, *pair = proof
    body = []
    for line in textwrap.wrap(measured, 66):
        body.append(svg.svg_text(_MARGIN, y + 14, line, "strong"))
        y += 18
    y += 4
    most = max((abs(one) for one in pair if math.isfinite(one)), default=0.0) or 1.0
    for words, value in zip(("before", "after"), pair, strict=True):
        share = min(1.0, abs(value) / most) if math.isfinite(value) else 1.0
        width = max(2.0, share * (_SHOWN - 1) * _CELL)
        box = {"x": _MARGIN + _LABEL, "y": y, "width": width, "height": _ROW - 4, "rx": 3, "class": f"proof {words}"}
        body.append(svg.svg_text(_MARGIN, y + 14, words, "small"))
        body.append(svg.svg_element("rect", box))
        body.append(svg.svg_text(_MARGIN + _LABEL + width + 6, y + 14, _figure(value), "small"))
        y += _ROW
    return y, body


# --- logs ------------------------------------------------------------------------------------------------------------


def _draw_log(identity: str, log: ShownLog, place: int, count: int) -> str:
    from parityscope.report import svg

    title = "the log" if count == 1 else ("the first log", "the second log")[place]
    body = [svg.svg_text(_MARGIN, 18, title, "strong")]
    y = 28.0
    for number, text in enumerate(log.lines):
        rows = textwrap.wrap(text, _LETTERS) or [""]
        high = len(rows) * _LINE + 6
        css = "line deciding" if number in log.deciding else "line"
        box: dict[str, object] = {"x": _MARGIN, "y": y, "width": _LOG_WIDTH - 2 * _MARGIN, "height": high}
        body.append(svg.svg_element("rect", {**box, "class": css}))
        body += [svg.svg_text(_MARGIN + 10, y + 15 + at * _LINE, row, "mono") for at, row in enumerate(rows)]
        y += high + 4
    return svg.svg_figure(
        identity,
        (_LOG_WIDTH, y + _MARGIN),
        "The lines of the log, those that decide marked",
        " ".join(_marked_lines(log)),
        body,
    )


def _marked_lines(log: ShownLog) -> Iterable[str]:
    return (text for number, text in enumerate(log.lines) if number in log.deciding)
