"""The environment: streams, variables, folders and rights that are not as one thinks."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import numpy as np

from proving.hostile.cases import ANSWERED, ANY, COMPARED, REFUSED, Ask, Draw, Ending, Family
from proving.hostile.making import (
    NAMES,
    answer,
    save,
    small_model,
    special_file,
    write_answers,
    write_model,
    write_samples,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_LATER = ("recording", "fixed", "study")
_RIGHT: Sequence[tuple[str, ...]] = (
    ("compare", "model.onnx", "--candidate", "sim:f16", "--inputs", "samples"),
    ("lint", "model.onnx"),
    ("run", "model.onnx", "--inputs", "samples", "-o", "recording"),
    ("predict", "model.onnx", "--inputs", "samples", "--formats", "f16"),
    ("diagnose", "model.onnx", "--candidate", "ort?optimization=disabled", "--inputs", "samples"),
    ("doctor",),
    ("explain", "RNG001"),
)
_WRONG: Sequence[tuple[str, ...]] = (
    ("compare", "nope.onnx", "--candidate", "sim:f16", "--inputs", "samples"),
    ("compare", "model.onnx", "--candidate", "evil", "--inputs", "samples"),
    ("lint", "samples"),
    ("report", "nope"),
)
_BEYOND = ("compare", "model.onnx", "--candidate", "saved?path=answers", "--inputs", "samples")


def _world(folder: Path) -> None:
    write_model(folder)
    write_samples(folder)
    write_answers(folder, "answers", lambda x: answer(x) + np.float32(1))


def _quick(draw: Draw) -> tuple[str, ...]:
    return draw.turn((*_RIGHT, _BEYOND))


def _codes(words: tuple[str, ...]) -> frozenset[int]:
    return frozenset({1}) if words == _BEYOND else ANSWERED


def lost_result(folder: Path, draw: Draw) -> Ask:
    """A stdout that takes nothing: the verdict was not told, so it is neither 0 nor 1 nor a bug."""
    _world(folder)
    kind = draw.turn(("full", "closed", "gone"))
    words = draw.turn((*_RIGHT[:2], *_RIGHT[3:], _BEYOND))
    return Ask(words, frozenset({2, 130}), stdout=kind, fresh=draw.turn((True, False)))


def lost_error(folder: Path, draw: Draw) -> Ask:
    """A stderr that takes nothing: what is wrong stays wrong."""
    _world(folder)
    words = draw.turn((*_WRONG, _BEYOND))
    return Ask(words, frozenset({1 if words == _BEYOND else 2}) | frozenset({2, 130} if words == _BEYOND else {2}), stderr=draw.turn(("full", "closed", "gone")), fresh=draw.turn((True, False)))


def no_input(folder: Path, draw: Draw) -> Ask:
    """A stdin that is closed or never ends: nobody reads it."""
    _world(folder)
    words = draw.turn((*_RIGHT, _BEYOND))
    return Ask(words, _codes(words), stdin=draw.turn(("closed", "zero")), fresh=True, writes=_LATER)


def nothing_open(folder: Path, draw: Draw) -> Ask:
    """No stream at all."""
    _world(folder)
    words = draw.turn((*_RIGHT[:2], *_WRONG, _BEYOND))
    return Ask(words, frozenset({2, 130}), stdin="closed", stdout="closed", stderr="closed", fresh=True)


def home(folder: Path, draw: Draw) -> Ask:
    """A home that is not there, is a file, or belongs to nobody."""
    _world(folder)
    (folder / "file").write_text("x")
    value = draw.turn((None, "", "/nonexistent", "{root}/work/file", "/dev/null", "/proc", "relative", "\x1b[2J", "{root}/work/" + "x" * 300))
    words = _quick(draw)
    return Ask(words, _codes(words), environment={"HOME": value, "XDG_CACHE_HOME": draw.turn((None, "", "/nonexistent", "relative"))}, fresh=True, writes=(*_LATER, "relative", "\x1b"))


def nobody(folder: Path, draw: Draw) -> Ask:
    """A user whom no passwd entry knows (as a container is started with any number), with and without variables that name him."""
    _world(folder)
    value = draw.turn((None, "", "/nonexistent", "{root}/work"))
    words = draw.turn((*_RIGHT, _BEYOND, *_WRONG))
    named = draw.turn(({}, {"USER": "x", "LOGNAME": "x"}))
    codes = REFUSED if words in _WRONG else _codes(words)
    return Ask(words, codes, environment={"HOME": value, "XDG_CACHE_HOME": None, **named}, fresh=True, nameless=True, writes=(*_LATER, ".cache"))


def temporary(folder: Path, draw: Draw) -> Ask:
    """A temporary folder that is not there, is a file, cannot be written, or has an unusual name."""
    _world(folder)
    (folder / "file").write_text("x")
    (folder / "tëmp ✓ (1)").mkdir()
    (folder / "closed").mkdir()
    (folder / "closed").chmod(0o500)
    value = draw.turn(("/nonexistent", "{root}/work/file", "{root}/work/tëmp ✓ (1)", "", "/proc", "{root}/work/closed", "relative", "/dev/full", "{root}/work/" + "d/" * 120))
    words = _quick(draw)
    return Ask(words, _codes(words) | REFUSED, environment={"TMPDIR": value, "TEMP": None, "TMP": None}, fresh=True, unprivileged=True, writes=_LATER)


def encodings(folder: Path, draw: Draw) -> Ask:
    """A terminal that knows no Unicode: what cannot be shown is shown otherwise, and the verdict stays."""
    _world(folder)
    value = draw.turn(("ascii", "latin-1", "ascii:strict", "utf-16", "cp437", "idna", "evil", "utf-8:surrogateescape"))
    words = _quick(draw)
    right = ANY if value in {"evil", "utf-16", "idna"} else _codes(words)
    return Ask(words, right, environment={"PYTHONIOENCODING": value}, fresh=True, writes=_LATER, stdout="coded", stderr="coded" if right == ANY else "file")


def languages(folder: Path, draw: Draw) -> Ask:
    """Languages and places that there are not."""
    _world(folder)
    value = draw.turn(("C", "POSIX", "tr_TR.UTF-8", "de_DE.ISO-8859-1", "evil", "", "zh_CN.GBK", "x" * 5000, "ar_EG.UTF-8"))
    words = _quick(draw)
    return Ask(words, _codes(words), environment={"LANG": value, "LC_ALL": value, "PYTHONUTF8": draw.turn((None, "0"))}, fresh=True, writes=_LATER)


def variables(folder: Path, draw: Draw) -> Ask:
    """Variables that runtimes, Python and terminals read."""
    _world(folder)
    name, value = draw.turn((
        ("TZ", "Evil/Nowhere"), ("TZ", "UTC+99"), ("SOURCE_DATE_EPOCH", "evil"), ("SOURCE_DATE_EPOCH", "-99999999999"), ("COLUMNS", "0"), ("COLUMNS", "-5"), ("COLUMNS", "evil"), ("COLUMNS", "1"), ("LINES", "x"), ("TERM", "\x1b[2J"), ("TERM", ""),
        ("NO_COLOR", "1"), ("FORCE_COLOR", "1"), ("NVIDIA_TF32_OVERRIDE", "\x1b[2Jevil"), ("OMP_NUM_THREADS", "evil"), ("OMP_NUM_THREADS", "-1"), ("CUDA_VISIBLE_DEVICES", "\x1b[31m"), ("PYTHONOPTIMIZE", "2"), ("PYTHONWARNINGS", "error"),
        ("PYTHONDONTWRITEBYTECODE", "1"), ("NUMBA_DISABLE_JIT", "1"), ("NUMBA_CACHE_DIR", "/proc"), ("LD_LIBRARY_PATH", "/nowhere\x1b[2J"), ("PARITYSCOPE_NO_FORK", "1"), ("PARITYSCOPE_CACHE", "/proc"), ("PATH", ""), ("PATH", None), ("PWD", "/nowhere"),
        ("PYTHONHASHSEED", "7"), ("MALLOC_ARENA_MAX", "1"), ("PYTHONMALLOC", "debug"), ("PYTHONINSPECT", ""), ("PYTHONTRACEMALLOC", "1"), ("NUMBA_NUM_THREADS", "1"), ("ORT_LOGGING_LEVEL", "0"), ("PYTHONUNBUFFERED", "1"), ("USER", ""), ("LOGNAME", "\x1b[2J"),
    ))  # fmt: skip
    words = _quick(draw)
    return Ask(words, _codes(words), environment={name: value}, fresh=True, writes=_LATER)


def ignored_signals(folder: Path, draw: Draw) -> Ask:
    """Signals that whoever started the command has left ignored: children are waited for all the same, and none seems to end well."""
    _world(folder)
    numbers = draw.turn(((signal.SIGCHLD,), (signal.SIGPIPE,), (signal.SIGHUP, signal.SIGCHLD), (signal.SIGTERM, signal.SIGINT)))
    words = draw.turn((*_RIGHT[:1], _BEYOND, ("compare", "model.onnx", "--candidate", "command?run=false", "--inputs", "samples"), ("compare", "model.onnx", "--candidate", "ort?isolate=on", "--inputs", "samples")))
    return Ask(words, REFUSED if "command?run=false" in words else _codes(words), ignores=numbers, fresh=True, writes=_LATER, runs=True)


def scarce_memory(folder: Path, draw: Draw) -> Ask:
    """Too little memory for the libraries: imports, threads and arrays get none, and that is said."""
    _world(folder)
    mebibytes = draw.turn((60, 150, 230, 340, 490, 635, 1000, 1024, 1100, 1300, 1600, 2200))
    words = draw.turn((*_RIGHT[:1], *_RIGHT[2:5], _BEYOND))
    return Ask(words, REFUSED if mebibytes < 1024 else _codes(words), address_space=mebibytes << 20, fresh=True, writes=_LATER)


def plain_modules(folder: Path, draw: Draw) -> Ask:
    """Files beside the data that have the names of modules: nothing of them is imported."""
    _world(folder)
    marker = str(folder.parent / "outside" / "ran")
    for name in ("numpy", "onnx", "json", "typing_extensions", "sitecustomize", "torch", "openvino", "tensorrt", "PIL", "rich", "polygraphy", "parityscope_plugin"):
        (folder / f"{name}.py").write_text(f"open({marker!r}, 'w')\n")
    words = draw.turn((*_RIGHT, _BEYOND))
    return Ask(words, _codes(words), writes=_LATER)


def rights(folder: Path, draw: Draw) -> Ask:
    """Folders and files that may not be read, or not be written."""
    _world(folder)
    which = draw.turn(("model", "sample", "samples", "answers", "here", "study"))
    words: tuple[str, ...] = _BEYOND
    right = REFUSED
    if which == "model":
        (folder / "model.onnx").chmod(0)
    elif which == "sample":
        (folder / "samples" / "000001.npz").chmod(0)
    elif which == "samples":
        (folder / "samples").chmod(0)
    elif which == "answers":
        (folder / "answers").chmod(0o600)
    else:
        (folder / "closed").mkdir()
        (folder / "closed").chmod(0o500)
        if which == "here":
            words = ("run", "model.onnx", "--inputs", "samples", "-o", "closed/recording")
        else:
            words = (*_BEYOND, "--study", "closed/study")
    return Ask(words, right, unprivileged=True, fresh=draw.turn((False, True)))


def folders(folder: Path, draw: Draw) -> Ask:
    """A folder to work in that cannot be written: the default study has no place, and that is told."""
    _world(folder)
    folder.chmod(0o500)
    words = draw.turn((_BEYOND, ("compare", "model.onnx", "--candidate", "sim:f16", "--inputs", "samples"), ("lint", "model.onnx"), ("predict", "model.onnx", "--inputs", "samples")))
    return Ask(words, _codes(words) if words[0] in {"lint", "predict"} else REFUSED, unprivileged=True)


def full_disk(folder: Path, draw: Draw) -> Ask:
    """Results that go to a device that is full."""
    _world(folder)
    words = draw.turn((
        ("predict", "model.onnx", "--inputs", "samples", "-o", "/dev/full"), ("lint", "model.onnx", "-o", "full.html"), ("predict", "model.onnx", "--inputs", "samples", "-o", "full.json"), ("repair", "model.onnx", "--inputs", "samples", "-o", "full.onnx"),
        ("run", "model.onnx", "--inputs", "samples", "-o", "full"), ("compare", "model.onnx", "--candidate", "sim:f16", "--inputs", "samples", "--study", "full"),
    ))  # fmt: skip
    for name in ("full.html", "full.json", "full.onnx", "full"):
        (folder / name).symlink_to("/dev/full")
    return Ask(words, ANY - {0, 1} if words[0] != "predict" else ANY)


def terminal(folder: Path, draw: Draw) -> Ask:
    """A terminal: colours and progress, and nothing that comes out of a file."""
    name = draw.turn([name for name in NAMES if "\0" not in name and "/" not in name and len(name) < 200])
    save(small_model(y=name), folder / "model.onnx")
    write_samples(folder)
    write_samples(folder, "answers", [{name: answer(x)} for x in (np.ones((1, 8), np.float32),) * 3])
    words = draw.turn((
        ("compare", "model.onnx", "--candidate", "sim:f16", "--inputs", "samples"), ("diagnose", "model.onnx", "--candidate", "sim:bf16", "--inputs", "samples"), ("lint", "model.onnx"), ("predict", "model.onnx", "--inputs", "samples"),
        ("compare", "model.onnx", "--candidate", "saved?path=nope", "--inputs", "samples", "--budget", f"{name}:rel_l2=1"), ("lint", name),
    ))  # fmt: skip
    return Ask(words, ANY, stdout="terminal", fresh=draw.turn((False, True)), environment={"TERM": "xterm-256color", "COLUMNS": "100"})


def unicode_places(folder: Path, draw: Draw) -> Ask:
    """Paths of unusual letters, spaces and signs, relative and absolute."""
    name = draw.turn(("模型 文件", "a b", "it's", 'say "hi"', "tab\there", "émoji🎉", "\u200fעברית", "-dash", "a;b|c&d", "%41%20", "x" * 200, "[bold]", "new\nline", "\x1b[31mred"))
    place = folder / name
    place.mkdir()
    _world(place)
    base = draw.turn((f"./{name}", str(place)))
    words = draw.turn((
        ("compare", f"{base}/model.onnx", "--candidate", "sim:f16", "--inputs", f"{base}/samples"), ("lint", f"{base}/model.onnx"), ("run", f"{base}/model.onnx", "--inputs", f"{base}/samples", "-o", f"{base}/recording"),
        ("diagnose", f"{base}/model.onnx", "--candidate", "sim:f16", "--inputs", f"{base}/samples", "--study", f"{base}/study", "--format", "json"),
    ))  # fmt: skip
    return Ask(words, ANSWERED, writes=(name.lstrip("."),), fresh=draw.turn((False, True)))


def gone(folder: Path, draw: Draw) -> Ask:
    """Something special where the temporary folder, the cache or the study would be."""
    _world(folder)
    kind = draw.turn(("fifo", "loop", "dangling", "socket", "empty"))
    special_file(folder / "study", kind)
    special_file(folder / "cache", kind)
    words = (*_BEYOND, "--study", "study") if draw.turn((True, False)) else ("predict", "model.onnx", "--inputs", "samples")
    environment = {"XDG_CACHE_HOME": "{root}/work/cache"}
    return Ask(words, REFUSED if "--study" in words else COMPARED | {3}, environment=environment, fresh=True, writes=("cache",))


def traces(folder: Path, draw: Draw) -> Ask:
    """Rights of what is written: a recording is nobody's business, and no variable is in a study."""
    _world(folder)
    words = ("diagnose", "model.onnx", "--candidate", "sim:f16", "--inputs", "samples", "--study", "study", *draw.turn(((), ("--redact",))))
    return Ask(words, ANSWERED, environment={"SECRET_TOKEN": "SECRET OF ANOTHER USER", "HF_TOKEN": "SECRET OF ANOTHER USER"}, fresh=True, writes=("study",), after=_no_secret)


def _no_secret(folder: Path, _: Ending) -> str:
    held = b"".join(path.read_bytes() for path in (folder / "study").rglob("*") if path.is_file())
    return "a secret of the environment is in the study" if b"SECRET OF ANOTHER USER" in held else ""


FAMILY = Family("environment", (
    lost_result, lost_error, no_input, nothing_open, home, temporary, encodings, languages, variables, plain_modules, rights, folders, full_disk, terminal, unicode_places, gone, traces, variables, lost_result, encodings,
    home, temporary, terminal, unicode_places, ignored_signals, scarce_memory, nobody, scarce_memory, nobody,
))  # fmt: skip
