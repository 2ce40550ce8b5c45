"""Policies: TOML that says what counts as within."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.hostile.cases import ANSWERED, ANY, COMPARED, REFUSED, Ask, Draw, Family
from proving.hostile.making import NAMES, SPECIAL, answer, special_file, write_answers, write_model, write_samples

if TYPE_CHECKING:
    from pathlib import Path

_LATER = ("recording", "fixed")
_GOOD = 'declared = "f16"\n[[budget]]\nmetric = "rel_l2"\nlimit = 0.01\nreason = "boxes move by less than a pixel"\n'


def budget(**keys: str) -> str:
    """One budget, with other keys or values than it has."""
    held = {"metric": '"rel_l2"', "limit": "0.01", "reason": '"because"'} | keys
    return "[[budget]]\n" + "".join(f"{key} = {value}\n" for key, value in held.items() if value)


def _ask(folder: Path, draw: Draw, content: str | bytes, right: frozenset[int] = REFUSED) -> Ask:
    (folder / "policy.toml").write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    return Ask(_about(folder, draw), right, writes=_LATER)


def _about(folder: Path, draw: Draw) -> tuple[str, ...]:
    write_model(folder)
    write_samples(folder)
    words = draw.turn((
        ("compare", "model.onnx", "--candidate", "sim:f16"), ("diagnose", "model.onnx", "--candidate", "sim:f16"),
        ("localize", "model.onnx", "--candidate", "ort?optimization=disabled"), ("repair", "model.onnx", "-o", "fixed.onnx"),
        ("verify", "model.onnx", "--before", "sim:f16", "--after", "ort", "--no-timing"),
        ("evaluate", "model.onnx", "--reference", "model.onnx"),
    ))  # fmt: skip
    return (*words, "--inputs", "samples", "--policy", "policy.toml")


def no_toml(folder: Path, draw: Draw) -> Ask:
    """Files that are no TOML, or TOML that costs more than it says."""
    content = draw.turn((
        b"[[budget]", b"declared = ", b"a = [" * 20_000, b"a = " + b"[" * 50_000 + b"]" * 50_000, b"a = " + b"{b=" * 20_000, b"\xff\xfe", b"\0" * 100,
        _GOOD.encode("utf-16"), b"a = " + b"9" * 100_000, b"a" + b".a" * 50_000 + b" = 1", b"[" + b"a." * 50_000 + b"a]", b'a = "' + b"x" * 5_000_000,
        b"a = 1\na = 2", b"a = 1e999999", b"\x1b]0;owned\x07", b'a = "\\ud800"', b"declared: f16\n", b'{"declared": "f16"}', draw.noise(300),
        b"a = 0x" + b"f" * 100_000, b"[a]\n[a]\n", b"a = 9999-99-99", b"a=1\rb=2", b'a = """' + b"x\n" * 100_000,
    ))  # fmt: skip
    return _ask(folder, draw, content)


def special(folder: Path, draw: Draw) -> Ask:
    """No regular file, or nothing in it."""
    kind = draw.turn(SPECIAL)
    special_file(folder / "policy.toml", kind)
    return Ask(_about(folder, draw), ANY if kind == "empty" else REFUSED, writes=_LATER, unprivileged=True)


def keys(folder: Path, draw: Draw) -> Ask:
    """Keys that there are not, and values of other types."""
    line = draw.turn((
        "declare = 'f16'", "Declared = 'f16'", "declared = 'fp16'", "declared = 16", "declared = ['f16']", "declared = ''", "declared_reason = 3",
        "samples = 0", "samples = -1", "samples = 1.5", "samples = true", "samples = '3'", "samples = " + "9" * 40, "match = 'nope'", "match = 3",
        "match = [3]", "match = ['nope']", "budget = 3", "budget = 'rel_l2'", "budget = {metric = 'rel_l2'}", "budget = [3]", "__class__ = 1",
        "declared = 2020-01-01", "samples = inf", "samples = nan", "match = [['y']]", "declared = '\\u001b[2J'", "'\\u001b[2J' = 1",
    ))  # fmt: skip
    return _ask(folder, draw, line.replace("'", '"') + "\n")


def budgets(folder: Path, draw: Draw) -> Ask:
    """Budgets that can never be judged."""
    text = draw.turn((
        budget(metric='"rel_l3"'), budget(metric="3"), budget(metric=""), budget(limit=""), budget(limit='"0.01"'), budget(limit="true"), budget(limit="nan"),
        budget(limit="-1"), budget(limit="[0.01]"), budget(reason=""), budget(reason="3"), budget(output='"nope"'), budget(output="3"), budget(atol="0.1"),
        budget(evil="1"), budget(metric="", limit="", atol="0.1"), budget(metric="", limit="", atol="-1", rtol="0.0"), budget(limit="1979-05-27"),
        budget(metric="", limit="", atol="nan", rtol="0.0"), budget() + budget(), budget(limit="-inf"), budget(metric='"\\u001b[2J"'),
        budget(output='""', metric='"rel_l2"') + budget(), budget(metric='"top1\\nagreement"'), budget(limit="-0.001"), budget(reason='""'),
    ))  # fmt: skip
    return _ask(folder, draw, text, ANY - {0, 1} if 'reason = ""' in text or 'output = ""' in text else REFUSED)


def many(folder: Path, draw: Draw) -> Ask:
    """Thousands of budgets, which contradict one another or are about nothing."""
    count = draw.turn((2000, 20_000))
    return _ask(folder, draw, "".join(budget(output=f'"o{n}"') for n in range(count)))


def harmful(folder: Path, draw: Draw) -> Ask:
    """Reasons that a terminal or a page would obey: they are shown, and nothing else."""
    name = draw.turn([name for name in NAMES if len(name) < 1000 and "\0" not in name])
    escaped = "".join(f"\\u{ord(c):04X}" if ord(c) < 0x10000 else f"\\U{ord(c):08X}" for c in name)
    text = f'declared = "f16"\ndeclared_reason = "{escaped}"\n' + budget(reason=f'"{escaped}"')
    ask = _ask(folder, draw, text, ANSWERED | REFUSED)
    formatted = ask.words[0] in {"compare", "diagnose", "verify", "evaluate", "localize"}
    return Ask((*ask.words, *(("--format", draw.turn(("text", "html", "json"))) if formatted else ())), ask.right, writes=_LATER)


def kept(folder: Path, draw: Draw) -> Ask:
    """Budgets that a right candidate keeps, and that a wrong one misses."""
    write_model(folder)
    write_samples(folder)
    wrong = draw.turn((False, True))
    write_answers(folder, "answers", (lambda x: answer(x) + np.float32(0.05)) if wrong else answer)
    text = draw.turn((
        budget(), budget(metric='"max_abs"', limit="0.001"), budget(metric="", limit="", atol="0.001", rtol="0.0"), budget(output='"y"'),
        budget(metric='"snr_db"', limit="60"), "# nothing but a remark\n" + budget(), "\ufeff" + budget(), budget().replace("\n", "\r\n"),
        budget(metric='"cosine"', limit="0.9999999"), budget(limit="1e-3"), budget(limit="0x0") if wrong else budget(limit="1e-1"),
    ))  # fmt: skip
    (folder / "policy.toml").write_text(text, newline="")
    verb = draw.turn(("compare", "diagnose"))
    words = (verb, "model.onnx", "--candidate", "saved?path=answers", "--inputs", "samples", "--policy", "policy.toml")
    right = frozenset({int(wrong)})
    return Ask(words, right | REFUSED if text[0] == "\ufeff" or "0x0" in text else right)


def never_met(folder: Path, draw: Draw) -> Ask:
    """Budgets that do not apply to what there is: nothing was judged by them, and that is no 0."""
    text = draw.turn((
        budget(metric='"top1_agreement"', limit="2"), budget(metric='"cosine"', limit="1.5"), budget(metric='"rel_l2"', limit="inf"),
        budget(metric='"norm_ratio"', limit="-1"), budget(metric="", limit="", atol="inf", rtol="0.0"), budget(metric='"mismatch_share"', limit="7"),
    ))  # fmt: skip
    ask = _ask(folder, draw, text, ANY)
    return Ask(ask.words, ANY, writes=_LATER)


def options_beside(folder: Path, draw: Draw) -> Ask:
    """A right policy beside options that contradict it or are none."""
    (folder / "policy.toml").write_text(_GOOD)
    more = draw.turn((
        ("--budget", "rel_l2=nan"), ("--budget", "nope:rel_l2=1"), ("--budget", "=1"), ("--budget", "rel_l2="), ("--budget", "rel_l2=1=2"),
        ("--budget", "rel_l2=0.1", "--budget", "rel_l2=0.2"), ("--policy", "other.toml"), ("--budget", "y:=1"), ("--budget", "\x1b[31m=1"),
        ("--budget", "rel_l2=-0.1"), ("--budget", "rel_l2=1e999"), ("--budget", "rel_l2=0x1"), ("--budget", "rel_l2=٣"), ("--budget", "rel_l2=1_0"),
    ))  # fmt: skip
    words = _about(folder, draw)
    loose = {"rel_l2=0.1", "rel_l2=1e999", "rel_l2=٣", "rel_l2=1_0"} & set(more)
    return Ask((*words, *more), ANY if loose else REFUSED, writes=_LATER)


def matched(folder: Path, draw: Draw) -> Ask:
    """Rows that are matched where there are none to match."""
    line = draw.turn(('match = ["y", "y"]', 'match = "y"', 'match = ["y"]', "match = []", 'match = [""]'))
    return _ask(folder, draw, line + "\n", ANY)


def paths(folder: Path, draw: Draw) -> Ask:
    """Policies by unusual paths: what is there is read, what is not is told."""
    write_model(folder)
    write_samples(folder)
    (folder / "a b").mkdir()
    (folder / "a b" / "політика.toml").write_text(_GOOD)
    path, right = draw.turn((
        ("a b/політика.toml", COMPARED | {3}), ("./a b/../a b/політика.toml", COMPARED | {3}), ("nope.toml", REFUSED), ("", REFUSED), ("a b", REFUSED),
        ("model.onnx", REFUSED), ("samples/000000.npz", REFUSED), ("x" * 5000, REFUSED), ("\x1b[31m.toml", REFUSED), ("a b/політика.toml/x", REFUSED),
    ))  # fmt: skip
    words = ("compare", "model.onnx", "--candidate", "sim:f16", "--inputs", "samples", "--policy", path)
    return Ask(words, right)


def flipped(folder: Path, draw: Draw) -> Ask:
    """A right policy with characters that changed on the way."""
    held = bytearray(_GOOD.encode())
    for _ in range(draw.turn((1, 2, 5))):
        held[draw.integer(0, len(held) - 1)] = draw.integer(1, 255)
    return _ask(folder, draw, bytes(held), ANY)


FAMILY = Family("policies", (
    no_toml, special, keys, budgets, many, harmful, kept, never_met, options_beside, matched, paths, flipped, keys, budgets, no_toml,
))  # fmt: skip
