"""Every attribute that the standard gives an operator, at the other values of its type; other versions of the operator."""

from __future__ import annotations

import itertools
import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper

from parityscope.hypotheses.changes import changes_of
from parityscope.hypotheses.edits import StretchEdit
from parityscope.hypotheses.functions import FUNCTIONS
from parityscope.hypotheses.schemas import (
    INTEGER,
    INTEGERS,
    REAL,
    REALS,
    TEXT,
    TEXTS,
    attribute_value,
    changed_node,
    describe_value,
    quoted_words,
    schema_of,
    versions_of,
    words_like,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parityscope.hypotheses.stretch import ComputedStretch

_ELEMENT_TYPES = ("to", "dtype", "output_dtype")
_MOST_TYPES = 24  # of ONNX's element types
_SHORT, _LONG = 8, 16  # entries: a list of axes or pads; a table
_MOST_EXCHANGED = 16
_TABLES = re.compile("node|tree")  # links of trees: another link may be a loop
_REAL_VALUES = (0.0, 1.0, 0.5, 0.1, 0.2, 0.01, *(10.0**-power for power in range(3, 13)))


_OF_EACH_CHANNEL = "InstanceNormalization"
_POWERS = 4  # of two, by which groups are more or fewer; chosen


def attribute_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """Edits of the attributes of `node`, the step at `place`."""
    schema = schema_of(node, stretch.context.opsets)
    arrays = [stretch.base[0], *(stretch.value(0, name) for name in node.input if name)]
    rank = max((array.ndim for array in arrays if array is not None), default=2)
    given = {one.name: one for one in node.attribute}
    standard = {} if schema is None else dict(schema.attributes)
    for name in dict.fromkeys([*given, *standard]):
        yield from _edits_of_attribute(node, place, name, given.get(name), standard.get(name), schema, rank)
    yield from _exchange_edits(node, place, given)
    yield from _padding_edits(stretch, place, node)
    yield from _group_edits(stretch, node)
    if "dilations" in standard:
        yield from _dilation_edits(stretch, place, node)
    versions = versions_of(node)
    for version in versions:
        if schema is not None and version != schema.since_version:
            bits = 4 + math.log2(len(versions))
            words = f"{node.op_type} as opset {version} defines it"
            yield StretchEdit(words=words, bits=bits, at=place, opset=version)


def _group_edits(stretch: ComputedStretch, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """Each index of the second axis normalized in parts, or several together: so a normalization of groups is written."""
    step, data = stretch.steps[0], stretch.value(0, node.input[0])
    if node.op_type != _OF_EACH_CHANNEL or len(stretch.steps) > 1 or data is None or data.ndim < 3:
        return
    groups, held = data.shape[1], [stretch.context.constants.get(name) for name in node.input[1:]]
    if any(array is None or np.unique(array).size > 1 for array in held):
        return
    elements = math.prod(data.shape[1:])
    others = [groups * 2**power // 2**_POWERS for power in range(2 * _POWERS + 1) if not groups * 2**power % 2**_POWERS]
    others = [count for count in others if 0 < count < elements and count != groups and not elements % count]

    def whole(one: ComputedStretch, sample: int, count: int) -> np.ndarray:
        given = one.known_value(sample, step.inputs[0])
        numbers = [np.full(count, array.flat[0], array.dtype) for array in held if array is not None]
        return one.compute(step, [given.reshape(given.shape[0], count, -1), *numbers]).reshape(given.shape)

    for count in others:
        yield StretchEdit(
            words=f"{count} groups in place of {groups}",
            bits=4 + abs(math.log2(count / groups)),
            whole=lambda one, sample, count=count: whole(one, sample, count),
        )


def _edits_of_attribute(
    node: onnx.NodeProto,
    place: int,
    name: str,
    given: onnx.AttributeProto | None,
    spec: Any | None,
    schema: Any | None,
    rank: int,
) -> Iterator[StretchEdit]:
    default = helper.get_attribute_value(spec.default_value) if spec is not None and spec.default_value.type else None
    if given is not None:
        kind = int(given.type)
    elif spec is not None:
        kind = int(spec.type)
    else:
        return
    now = helper.get_attribute_value(given) if given is not None else default
    described = (spec.description if spec is not None else "", schema.doc if schema is not None else "")
    likely = _likely_values(kind, name, now, described[0])
    if given is not None and default is not None:
        likely = {describe_value(default): default, **likely}
    values = {**likely, **_other_values(kind, name, now, described, rank)}
    shown = "its default" if now is None else describe_value(now)
    for words, value in values.items():
        if now is not None and _are_equal(value, now):
            continue
        yield StretchEdit(
            words=f"attribute {name} {words} in place of {shown}",
            bits=3 + math.log2(max(2, len(likely if words in likely else values))),
            at=place,
            node=changed_node(node, name, value, kind),
        )


def _likely_values(kind: int, name: str, now: Any, description: str) -> dict[str, Any]:
    """The few values that somebody writes instead, by what they are called: they take fewer words to say than all others.

    Of words those that the standard names as it names the one that is there; of paddings what leaves every size as it was: one
    more on one side and one less on the other, and all of it on one side.
    """
    if kind == TEXT and now is not None:
        return {word: word for word in words_like(now.decode(), description) if word != name}
    if kind == INTEGERS and name == "pads" and now and any(now):
        first, last = np.array(now).reshape(2, -1)
        moves = (np.minimum(last, 1), -np.minimum(first, 1), last, -first)
        moved = [np.concatenate([first + move, last - move]).tolist() for move in moves]
        return {describe_value(value): value for value in moved}
    return {}


def _other_values(kind: int, name: str, now: Any, described: tuple[str, str], rank: int) -> dict[str, Any]:
    """Other values of an attribute, by what they are called."""
    if kind == INTEGER:
        types = range(1, _MOST_TYPES) if name in _ELEMENT_TYPES else ()
        return {describe_value(value): value for value in (*integers_near(now or 0, rank), *types)}
    if kind == REAL:
        return {describe_value(value): value for value in reals_near(now or 0.0)}
    if kind == TEXT:
        words = [*quoted_words(" ".join(described)), *re.findall(r"\b[a-z]{3,14}\b", described[0])[:40]]
        return {word: word for word in words if word.encode() != now}
    if kind == INTEGERS:
        return _integer_lists(name, list(now or ()), rank)
    if kind == REALS and now:
        return _real_lists(np.array(now, np.float32))
    if kind == TEXTS and now:
        words = list(quoted_words(" ".join(described)))
        found = {
            f"{word} for every {old.decode()}": [word if one == old else one.decode() for one in now]
            for old in sorted(set(now))
            for word in words
            if word.encode() != old
        }
        return {**found, "reversed": [one.decode() for one in now[::-1]]}
    return {}


def _integer_lists(name: str, now: list[int], rank: int) -> dict[str, list[int]]:
    if len(now) > _LONG and _TABLES.search(name):
        return {}
    if len(now) > _SHORT:
        array = np.array(now)
        some = np.unique(array)[:_MOST_EXCHANGED].tolist()
        found = {
            f"with {a} and {b} exchanged": np.where(array == a, b, np.where(array == b, a, array)).tolist()
            for a, b in itertools.combinations(some, 2)
        }
        return {
            **found,
            "reversed": now[::-1],
            "each one more": (array + 1).tolist(),
            "each one less": (array - 1).tolist(),
        }
    if now:
        return {describe_value(value): value for value in lists_near(now, rank)}
    size = rank - 2 if rank > 2 else rank
    plain = [[value] * count for count in (size, 2 * size, 1) for value in (0, 1, 2)]
    orders = [list(order) for order in itertools.permutations(range(min(rank, 4)))][:24]
    return {describe_value(value): value for value in [*plain, *orders]}


def _real_lists(now: np.ndarray) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"all zero": [0.0] * now.size}
    with np.errstate(all="ignore"):
        for words, change in changes_of(now):
            found[words] = change(now).tolist()
        for word, function in FUNCTIONS.items():
            found[f"passed through {word}"] = function(now.astype(np.float64)).tolist()
    return {words: value for words, value in found.items() if np.isfinite(value).all()}


def _padding_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """The operator's padding done before it, with other numbers than its own."""
    pads = attribute_value(node, "pads")
    data = stretch.value(0, node.input[0]) if node.input else None
    if not pads or not any(pads) or data is None or data.dtype.kind != "f" or len(pads) != 2 * (data.ndim - 2):
        return
    half = len(pads) // 2
    widths = [(0, 0), (0, 0), *zip(pads[:half], pads[half:], strict=True)]
    if min(pads) < 0:
        return
    bare = changed_node(changed_node(node, "pads", None), "auto_pad", None)
    modes: dict[str, dict[str, Any]] = {word: {"mode": word} for word in ("edge", "reflect", "symmetric", "wrap")}
    numbers = {"zeros": 0.0, "ones": 1.0, "minus ones": -1.0, "the least number": float(np.finfo(np.float32).min)}
    modes |= {word: {"mode": "constant", "constant_values": value} for word, value in numbers.items()}
    for word, options in modes.items():
        yield StretchEdit(
            words=f"padded with {word if word in numbers else f'its border ({word})'}",
            bits=3 + math.log2(len(modes)),
            at=place,
            node=bare,
            before=lambda arrays, o=options: [np.pad(arrays[0], widths, **o), *arrays[1:]],
        )


def _dilation_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """Another dilation of a window, with the padding that leaves every size as it was: whoever writes one writes both."""
    weights = stretch.value(0, node.input[1]) if len(node.input) > 1 else None
    windows = np.array(
        attribute_value(node, "kernel_shape") or (() if weights is None else weights.shape[2:]), np.int64
    )
    if not windows.size or attribute_value(node, "auto_pad") not in {None, b"NOTSET"}:
        return
    now = np.array(attribute_value(node, "dilations") or [1] * windows.size)
    pads = np.array(attribute_value(node, "pads") or [0] * (2 * windows.size)).reshape(2, -1)
    for dilation in dict.fromkeys(map(tuple, (now // now, 2 * now, now // 2, now + 1, now - 1))):
        other = np.array(dilation)
        more = (windows - 1) * (other - now)
        # On the side that has all of it, where one does; else on both.
        behind = np.where(pads[0] == pads[1], more // 2, np.where(pads[1] > pads[0], more, 0))
        padded = pads + np.stack([more - behind, behind])
        if not more.any() or other.min() < 1 or padded.min() < 0:
            continue
        values = {"dilations": other.tolist(), "pads": padded.ravel().tolist()}
        made = node
        for name, value in values.items():
            made = changed_node(made, name, value, INTEGERS)
        told = [describe_value(one.ravel().tolist()) for one in (other, padded, now, pads)]
        words = f"attributes dilations {told[0]} and pads {told[1]} in place of {told[2]} and {told[3]}"
        yield StretchEdit(words=words, bits=6.0, at=place, node=made)


def _exchange_edits(
    node: onnx.NodeProto, place: int, given: Mapping[str, onnx.AttributeProto]
) -> Iterator[StretchEdit]:
    """Two attributes of one type with each other's values."""
    plain = {INTEGER, REAL, INTEGERS, REALS}
    for one, other in itertools.combinations(given.values(), 2):
        mine, its = helper.get_attribute_value(one), helper.get_attribute_value(other)
        if (
            one.type == other.type
            and one.type in plain
            and np.size(mine) == np.size(its) <= _LONG
            and not _are_equal(mine, its)
        ):
            swapped = changed_node(changed_node(node, one.name, its, one.type), other.name, mine, other.type)
            yield StretchEdit(
                words=f"attributes {one.name} and {other.name} exchanged", bits=8.0, at=place, node=swapped
            )


def _are_equal(one: Any, other: Any) -> bool:
    if isinstance(one, str) and isinstance(other, bytes):
        return one.encode() == other
    return bool(np.array_equal(np.asarray(one), np.asarray(other)))


def integers_near(value: int, rank: int) -> list[int]:
    """Other integers for an axis, a count or a switch."""
    near = [value - 1, value + 1, 0, 1, -1, 2, 2 * value, value // 2, -value, *range(-rank, rank + 1)]
    return [other for other in dict.fromkeys(near) if other != value]


def reals_near(value: float) -> list[float]:
    """Other numbers for a factor or an epsilon."""
    near = [2 * value, value / 2, 10 * value, value / 10, -value, value * value, value + 1, math.sqrt(abs(value))]
    near += [1 / value] if value else []
    return [other for other in dict.fromkeys([*near, *_REAL_VALUES]) if other != value and math.isfinite(other)]


def thresholds_near(value: float) -> list[float]:
    """Round numbers of the same power of ten: what somebody would write for a threshold."""
    if not value or not math.isfinite(value):
        return []
    whole = math.copysign(10.0 ** math.ceil(math.log10(abs(value))), value)
    return [other for other in (float(f"{whole * step / 20:.6g}") for step in range(1, 21)) if other != value]


def lists_near(value: list[int], rank: int) -> list[list[int]]:
    """Other lists of few integers: entries one off or set, halves exchanged, turned round, permuted."""
    size, half = len(value), len(value) // 2
    found = [value[::-1], value[half:] + value[:half], [0] * size, [1] * size]
    found += [[entry + 1 for entry in value], [entry - 1 for entry in value], [2 * entry for entry in value]]
    found.append([entry // 2 for entry in value])
    found += [[entry + sign * index for index, entry in enumerate(value)] for sign in (-1, 1)]  # sizes that are one off
    if size % 2 == 0:
        both = [a + b for a, b in zip(value[:half], value[half:], strict=True)]
        found += [value[:half] * 2, value[half:] * 2, [0] * half + both, both + [0] * half]
    for index in range(min(size, 12)):
        entries = [value[index] + 1, value[index] - 1, 0, 1, -1, *(range(rank) if size <= 2 else ())]
        found += [[*value[:index], entry, *value[index + 1 :]] for entry in dict.fromkeys(entries)]
    found += [value[index:] + value[:index] for index in range(1, min(size, 8))]
    if size <= 4:
        found += [list(order) for order in itertools.permutations(value)]
    return [list(entry) for entry in dict.fromkeys(map(tuple, found)) if list(entry) != value]
