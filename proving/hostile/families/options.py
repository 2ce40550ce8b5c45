"""Options: what may be typed, by mistake or on purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

from proving.hostile.cases import ANSWERED, ANY, COMPARED, REFUSED, Ask, Draw, Family
from proving.hostile.making import marking, marking_source, save, small_model, write_answers, write_model, write_samples

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_LATER = ("recording", "fixed")
_DIAGNOSE = ("diagnose", "model.onnx", "--candidate", "sim:f16", "--inputs", "samples")
_COMPARE = ("compare", "model.onnx", "--candidate", "sim:f16", "--inputs", "samples")
_PREDICT = ("predict", "model.onnx", "--inputs", "samples")
_REPAIR = ("repair", "model.onnx", "--inputs", "samples", "-o", "fixed.onnx")
_VERIFY = ("verify", "model.onnx", "--before", "sim:f16", "--after", "ort", "--inputs", "samples", "--no-timing")
_RUN = ("run", "model.onnx", "--inputs", "samples", "-o", "recording")


def _world(folder: Path) -> None:
    write_model(folder)
    write_samples(folder)
    write_answers(folder)


def _ask(folder: Path, words: Sequence[str], right: frozenset[int] = REFUSED) -> Ask:
    _world(folder)
    return Ask(tuple(words), right, writes=_LATER)


def targets(folder: Path, draw: Draw) -> Ask:
    """Targets that are none."""
    target = draw.turn((
        "", ":", "?", "ort:", "ort?", "ort?=", "ort?=a", "ort?a", "ort?a=", "ort:f17", "ort:f16:f16", "Ort", "ort ", "evil", "sim:f16?", "sim:f16?a=b", "sim:f16&overflow=saturate",
        "ort?threads=1&threads=2", "ort?%74hreads=1", "ort?threads=%00", "ort?model=%FF%FE", "ort?model=model.onnx%00.png", "\x1b[2J", "ort?\x1b[2J=1", "ort:\x1b[2J", "x" * 100_000,
        "ort?model=" + "x" * 5000, "saved", "saved?path=", "saved?", "command", "command?run=", "command?run=%20", "command?run='", "torch", "trt?engine=nope", "triton:f99",
        "command?run=./nope", "command?run=/", "command?run=.", "command?run=model.onnx", "saved?path=nope", "saved?path=model.onnx", "saved?path=.", "ort#fragment", "http://x/y",
        "../../etc/passwd", "ort?model=/dev/zero", "ort?model=", "sim", "openvino:f99", "openvino?observe=evil", "ort:F16", "ort?device=evil", "ort;ort", "ort|ort", "$(ort)",
    ))  # fmt: skip
    words = draw.turn((("compare", "model.onnx", "--candidate"), ("diagnose", "model.onnx", "--candidate"), ("compare", "model.onnx", "--candidate", "sim:f16", "--reference"), ("run", "model.onnx", "-o", "recording", "--target")))
    possible = {"ort:", "ort?", "sim:f16?", "sim", "ort?%74hreads=1", "openvino:f99"}
    return _ask(folder, (*words, target, "--inputs", "samples"), ANY if target in possible else REFUSED)


def backend_options(folder: Path, draw: Draw) -> Ask:
    """Options of backends that there are not, and values that they do not take."""
    target = draw.turn((
        "ort?optimization=evil", "ort?optimization=", "ort?observe=none", "ort?threads=-1", "ort?threads=x", "ort?threads=1.5", "ort?threads=" + "9" * 30, "ort?device=cpu:0", "ort?device=cuda:x",
        "ort?tf32=yes", "ort?tf32=", "ort?io_binding=evil", "ort?deterministic=1", "ort?custom_ops=nope.so", "ort?custom_ops=model.onnx", "ort?isolate=evil", "ort?isolate=", "ort?timeout=0",
        "ort?timeout=-1", "ort?timeout=nan", "ort?timeout=inf", "ort?timeout=1e999", "ort?timeout=x", "ort?timeout=", "sim:f16?overflow=evil", "sim:f16?range=evil", "sim:f16?threads=x",
        "sim:int8?dynamic_range=nope", "sim:f16?isolate=On", "openvino:f16?observe=evil", "openvino:f16?threads=-5", "openvino:f16?threads=x", "openvino?evil=1", "saved?path=answers&pair=evil",
        "saved?path=answers&evil=1", "command?run=true&timeout=x", "command?run=true&optimization=evil", "command?run=true&evil=1", "saved?path=answers&isolate=evil", "sim:f16?model=nope.onnx",
        "ort?cudnn_conv_algo_search=evil", "trt?evil=1", "torch?module=nope.py:f", "torch?mode=evil", "triton?url=evil", "triton?protocol=evil", "triton?wait=x", "ort?isolate=evil&isolate=on",
        "ort?environment=nope", "sim:f16?overflow=saturate&overflow=infinity", "ort?threads=٣", "ort?threads=0x1", "ort?threads= 1",
    ))  # fmt: skip
    words = draw.turn((_DIAGNOSE, _COMPARE, _VERIFY))
    return _ask(folder, [target if word == "sim:f16" else word for word in words], ANY if target in {"ort?threads=٣", "ort?threads= 1", "triton?url=evil"} else REFUSED)


def limits(folder: Path, draw: Draw) -> Ask:
    """Limits that limit nothing, or everything."""
    words = draw.turn((
        (*_DIAGNOSE, "--memory"), (*_DIAGNOSE, "--time"), (*_REPAIR, "--time"), (*_PREDICT, "--memory"), (*_RUN, "--memory"), ("pipeline", "x.toml", "--memory"), (*_VERIFY[:-1], "--time"),
    ))  # fmt: skip
    value = draw.turn((
        "0", "-1", "", "x", "nan", "inf", "1e999", "5", "MiB", "512", "512 MiB", "-512MiB", "0MiB", "٣MiB", "1e3MiB", "9" * 400 + "GiB", "60", "-60s", "0s", "nans", "infs", "s", "1h30m", "\x1b[31m", "1_0s", "0x10MiB", "512mib",
    ))  # fmt: skip
    return _ask(folder, (*words, value), ANY)


def numbers(folder: Path, draw: Draw) -> Ask:
    """Numbers of options that are none."""
    option = draw.turn((
        (*_DIAGNOSE, "--samples"), (*_DIAGNOSE, "--seed"), (*_DIAGNOSE, "--steps"), (*_PREDICT, "--draws"), (*_REPAIR, "--search-samples"), (*_REPAIR, "--held-out"), (*_REPAIR, "--margin"),
        (*_REPAIR, "--evaluations"), (*_REPAIR, "--sensing"), (*_REPAIR, "--pick"), (*_REPAIR, "--floor"), (*_REPAIR, "--threads"), (*_VERIFY, "--floor"), (*_VERIFY, "--seed"), ("compare", "model.onnx", "--candidate", "sim:f16", "--seed"),
        ("faults", "--sample"), ("faults", "--processes"), ("compare", "model.onnx", "--candidate", "sim:f16", "--samples"),
    ))  # fmt: skip
    value = draw.turn(("-1", "0", "x", "nan", "inf", "-inf", "1e999", "1.5", "9" * 60, "", "٣", "-0", "0x10", "1_000", "\x1b[31m"))
    faults = option[0] == "faults"
    return _ask(folder, (*option, value), REFUSED if faults and value not in {"٣", "1_000", "-0"} else ANY - ({0, 1} if faults else frozenset()))


def budgets(folder: Path, draw: Draw) -> Ask:
    """Budgets that allow everything or nothing, or are no numbers."""
    budget = draw.turn((
        "rel_l2=1e400", "rel_l2=inf", "rel_l2=nan", "rel_l2=-1", "rel_l2=1_0", "rel_l2=٣", "rel_l2=", "=1", ":rel_l2=1", "rel_l2", "evil=1", "nope:rel_l2=1", "cosine=-1", "cosine=2", "top1_agreement=0", "top1_agreement=7", "norm_ratio=-1", "rel_l2=" + "9" * 5000,
        "rel_l2=0x1", "y:rel_l2=1e999", "", "rel_l2=1=2",
    ))  # fmt: skip
    return _ask(folder, (*draw.turn((_COMPARE, _VERIFY, _REPAIR)), "--budget", budget))


def generated(folder: Path, draw: Draw) -> Ask:
    """Inputs that are to be generated and that no machine could hold."""
    save(small_model(), folder / "model.onnx")
    message = onnx.load(folder / "model.onnx")
    message.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    message.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "N"
    onnx.save(message, folder / "model.onnx")
    rows = draw.turn((1 << 31, 1 << 40, (1 << 62) - 1, 10**17, 10**25))
    words = draw.turn((("compare", "model.onnx", "--candidate", "sim:f16"), ("predict", "model.onnx"), ("run", "model.onnx", "-o", "recording")))
    return Ask((*words, "--shapes", f"x:{rows}x8"), REFUSED, writes=_LATER)


def shapes(folder: Path, draw: Draw) -> Ask:
    """Shapes that are none."""
    shape = draw.turn((
        "", ":", "x", "x:", ":1x8", "x:0x8", "x:-1x8", "x:1x9", "x:ax8", "x:1x8x", "x:x", "nope:1x8", "x:1", "x:99999999999999999999x8", "x:1000000000000x8", "x:1X8", "x:1,8", "x=1x8", "x:1x8,x:1x8", "x:٣x8", "\x1b[2J:1x8", "x:1.0x8",
        "x:" + "1x" * 50_000 + "8", "x: 1x8",
    ))  # fmt: skip
    words = draw.turn((("compare", "model.onnx", "--candidate", "sim:f16"), _PREDICT[:2], ("run", "model.onnx", "-o", "recording"), ("lint", "model.onnx")))
    return _ask(folder, (*words, "--shapes", shape), ANY if shape in {"x: 1x8", "x:1X8"} or words[0] == "lint" else REFUSED)


def nothing(folder: Path, draw: Draw) -> Ask:
    """Options that are given and empty, as of a variable of the shell that is not set."""
    option = draw.turn(("--inputs", "--study", "--policy", "--reference", "--declared", "--match", "--budget", "--shapes", "--memory", "--preprocess"))
    words = draw.turn((_COMPARE, _DIAGNOSE))
    return _ask(folder, (*words, f"{option}=") if draw.turn((True, False)) else (*words, option, ""))


def names(folder: Path, draw: Draw) -> Ask:
    """Names of tensors, metrics and formats that there are not."""
    words = draw.turn((
        (*_DIAGNOSE, "--map", "a"), (*_DIAGNOSE, "--map", "a=b=c"), (*_DIAGNOSE, "--map", "="), (*_DIAGNOSE, "--map", "y=nope"), (*_DIAGNOSE, "--match", ""), (*_DIAGNOSE, "--match", "nope"), (*_DIAGNOSE, "--match", "y,y"),
        (*_DIAGNOSE, "--state", "y"), (*_DIAGNOSE, "--state", "y=x"), (*_DIAGNOSE, "--state", "y=x", "--steps", "0"), (*_DIAGNOSE, "--state", "nope=x"), (*_DIAGNOSE, "--declared", "evil"), (*_DIAGNOSE, "--declared", ""),
        (*_DIAGNOSE, "--format", "evil"), (*_DIAGNOSE, "--format", ""), (*_DIAGNOSE, "--format", "../text"), (*_DIAGNOSE, "--peer", "evil"), (*_DIAGNOSE, "--real", "nope"), (*_DIAGNOSE, "--images", "nope"),
        (*_DIAGNOSE, "--candidate-inputs", "nope"), (*_DIAGNOSE, "--preprocess", "nope"), (*_PREDICT, "--formats", "evil"), (*_PREDICT, "--formats", ""), (*_PREDICT, "--formats", "f16,,bf16"), (*_PREDICT, "--formats", "f16;bf16"),
        (*_PREDICT, "--profile", "evil"), (*_PREDICT, "--dynamic-range", "nope"), (*_PREDICT, "--format", "node-data"), (*_REPAIR, "--low", "evil"), (*_REPAIR, "--low", ""), (*_REPAIR, "--low", "f16,f16"), (*_REPAIR, "--types", "evil"),
        (*_REPAIR, "--settings", "evil"), (*_REPAIR, "--consent", "evil"), (*_REPAIR, "--metric", "evil"), (*_REPAIR, "--candidate", "evil"), (*_REPAIR, "--profile", "nope"), (*_REPAIR, "--plan", "nope"), (*_RUN, "--format", "evil"),
        ("lint", "model.onnx", "--formats", "evil"), ("lint", "model.onnx", "--formats", ""), ("lint", "model.onnx", "--network", "evil"), ("lint", "model.onnx", "--format", "evil"), ("network", "model.onnx", "--product", "evil"),
        ("network", "model.onnx", "--fix", "x"), ("network", "model.onnx", "--fix", "nope=1"), ("network", "model.onnx", "--candidate", "evil"), ("doctor", "--format", "evil"), ("explain", "EVIL"), ("explain", "../../etc/passwd"), ("explain", ""),
        ("explain", "\x1b[31m"), ("list", "evil"), ("list", ""), ("list", "__init__"), ("faults", "evil"), ("faults", "--family", "evil"), ("faults", "--part", "evil"), ("faults", "--list", "--format", "evil"),
        ("evaluate", "model.onnx", "--inputs", "samples", "--reference", "nope.onnx"), (*_VERIFY, "--metric", "evil"), (*_VERIFY, "--labels", "nope"), (*_VERIFY, "--format", "evil"), (*_VERIFY, "--policy", "nope"),
    ))  # fmt: skip
    loose = words[-1] in {"y,y", "y=x", "f16,f16", "f16,,bf16", "0"}
    return _ask(folder, words, ANY if loose else REFUSED)


def verbs(folder: Path, draw: Draw) -> Ask:
    """Verbs and options that there are not, in places where they are not meant."""
    words = draw.turn((
        (), ("",), ("evil",), ("--evil",), ("-x",), ("diagnos",), ("DIAGNOSE", "model.onnx"), ("diagnose",), ("diagnose", "--"), ("diagnose", "model.onnx", "model.onnx", "--candidate", "ort"), (*_DIAGNOSE, "--evil"),
        (*_DIAGNOSE, "--candidate"), (*_DIAGNOSE, "--candidate", "ort"), (*_DIAGNOSE, "extra"), ("--format", "json", *_DIAGNOSE), (*_DIAGNOSE, "—quiet"), ("\x1b[2J",), ("diagnose", "\x1b[2J", "--candidate", "ort"), ("lint",), ("lint", "a", "b"),
        ("lint", ""), ("lint", "."), ("report",), ("experiment",), ("run", "model.onnx"), ("verify", "model.onnx"), ("repair", "model.onnx", "--quiet", "--quiet", "-o"), ("--version", "evil"), ("lint", "-"), ("lint", "x" * 9000),
        ("lint", "--model", "model.onnx"), ("help",), ("-h",), ("lint", "--help=1"), ("lint", "model.onnx", "--formats"), ("new",), ("new", "check"), ("compare", "model.onnx", "--candidate=--inputs"), ("lint", "/"), ("lint", "nul\n.onnx"),
    ))  # fmt: skip
    right = ANY if words in {("--version", "evil"), (*_DIAGNOSE, "--candidate", "ort")} else REFUSED
    ask = _ask(folder, words, right)
    return Ask(ask.words, right, after=None, writes=_LATER) if words else Ask((), ANY, stderr="help")


def places(folder: Path, draw: Draw) -> Ask:
    """Results that are written where something is, or where nothing can be; what is there stays as it is."""
    _world(folder)
    (folder / "mine").mkdir()
    (folder / "mine" / "a.txt").write_text("mine")
    (folder / "loop").symlink_to("loop")
    (folder / "there.html").write_text("mine")
    place = draw.turn(("mine", "model.onnx", "model.onnx/x", "/proc/x", "loop", "nowhere/deep/x", "", ".", "..", "/", "x" * 300, "samples", "mine/a.txt", "/dev/null", "a\nb", "\x1b[2Jx", "/dev/full", "../outside"))
    words = draw.turn(((*_DIAGNOSE, "--study"), (*_RUN[:-1],), (*_REPAIR[:-1],), (*_PREDICT, "-o"), (*_VERIFY, "--study"), (*_COMPARE, "--study"), ("lint", "model.onnx", "-o")))
    new = place in {"nowhere/deep/x", "a\nb", "\x1b[2Jx"} or (place == "/dev/null" and words[-1] == "-o")
    return Ask((*words, place), ANY if new else REFUSED, writes=("nowhere", "a", "\x1b"))


def plug_ins(folder: Path, draw: Draw) -> Ask:
    """Names of plug-ins that are no names, or lead elsewhere."""
    name = draw.turn(("", "a b", "../x", "/tmp/x", "class", "__init__", "1a", "a-b", "é", "x" * 300, "a.py", "\x1b[2J", "a\nb", "import", "None", "rel_l2", "-x", "os"))
    kind = draw.turn(("metric", "backend", "check", "rule", "repair", "renderer", "evil", ""))
    folder_option = draw.turn((".", "nowhere", "model.onnx", "/proc"))
    _world(folder)
    ask = ("new", kind, "--folder", folder_option, "--", name)
    return Ask(ask, ANY if folder_option == "." or folder_option == "nowhere" else REFUSED, writes=("x", "os", "é", "none", "None", "__init__", "a", "nowhere"))  # noqa: PLR1714


def shell(folder: Path, draw: Draw) -> Ask:
    """Words that a shell would run: nothing here is a shell."""
    _world(folder)
    (folder / "evil.py").write_text(marking_source(folder))
    trap = marking(folder)
    words = draw.turn((
        ("lint", f"$({trap})"), ("lint", f"`{trap}`"), ("lint", f"; {trap}"), ("compare", "model.onnx", "--candidate", f"saved?path=$({trap})", "--inputs", "samples"), ("explain", "evil"), ("list", "evil"),
        ("run", "model.onnx", "--inputs", f"|{trap}", "-o", "recording"), ("report", "evil.py"), ("lint", "evil.py"), ("compare", "model.onnx", "--candidate", "evil", "--inputs", "samples"), ("pipeline", "evil.py"), ("log", "evil.py"),
        ("compare", "model.onnx", "--candidate", "saved?path=evil.py", "--inputs", "samples"), ("run", "model.onnx", "--inputs", "evil.py", "-o", "recording"), ("diagnose", "model.onnx", "--candidate", "sim:f16", "--inputs", "samples", "--policy", "evil.py"),
    ))  # fmt: skip
    return Ask(words, REFUSED, writes=_LATER)


def programs(folder: Path, draw: Draw) -> Ask:
    """Programs that the user names and that do not do what they should."""
    _world(folder)
    body, right = draw.turn((
        ("exit 0", REFUSED), ("exit 3", REFUSED), ("kill -9 $$", REFUSED), ("echo x > $2/000000.npz", REFUSED), ("cp $1/000000.npz $2/", REFUSED), ("mkfifo $2/000000.npz", REFUSED), ("ln -s /dev/zero $2/000000.npz", REFUSED),
        ("yes | head -c 30000000", REFUSED), ("yes | head -c 30000000 >&2; exit 1", REFUSED), ("sleep 1000", REFUSED), ("sleep 1000 & exit 0", REFUSED), ("setsid sleep 1000 >/dev/null 2>&1 & exit 1", REFUSED), ("printf '\\033[2J' >&2; exit 1", REFUSED),
        ("rm -rf $1; exit 0", REFUSED), ("chmod 0 $2; exit 0", REFUSED), ("head -c 100 /dev/zero > $2/000000.npz", REFUSED), ("mkdir $2/000000.npz", REFUSED), ("printf '\\377\\376' >&2; exit 1", REFUSED), ("kill -TERM $PPID; sleep 9", ANY - {0, 1}),
        ("echo '[' > $2/environment.json; exit 0", REFUSED), ("rm -rf $2; exit 0", REFUSED), ("ln -s $1 $2/x; exit 0", REFUSED), ("cat", REFUSED), ("trap '' TERM; sleep 1000", REFUSED),
    ))  # fmt: skip
    (folder / "infer.sh").write_text(f"#!/bin/sh\n{body}\n")
    (folder / "infer.sh").chmod(0o755)
    words = draw.turn((("compare", "model.onnx"), ("diagnose", "model.onnx"), ("verify", "model.onnx", "--after", "ort", "--no-timing")))
    flag = "--before" if words[0] == "verify" else "--candidate"
    return Ask((*words, flag, "command?run=./infer.sh&timeout=3", "--inputs", "samples"), right if right != ANY - {0, 1} else frozenset({2, 3, 130}), runs=True)


def loaders(folder: Path, draw: Draw) -> Ask:
    """Loaders that the user names and that do not do what they should."""
    _world(folder)
    (folder / "l.py").write_text(
        "import os, sys, numpy as np\nX = np.zeros((1, 8), np.float32)\ndef leaves(): os._exit(0)\ndef leaves_late():\n    yield {'x': X}\n    os._exit(0)\ndef exits(): sys.exit(0)\n"
        "def exits_one(): sys.exit(1)\ndef none(): return None\ndef nothing(): return []\ndef fails():\n    yield {'x': X}\n    raise ValueError('\\x1b[2J' * 3)\ndef names():\n    yield {'z': X}\n"
        "def objects():\n    yield {'x': np.array([object()])}\ndef text():\n    yield 'a'\ndef number(): return 3\ndef deep(): return deep()\ndef asks(a): return a\ndef interrupts(): raise KeyboardInterrupt\n"
        "def closes():\n    os.close(1); os.close(2)\n    yield {'x': X}\ndef prints():\n    print('\\x1b[2Jx' * 10)\n    yield {'x': X}\ndef noise():\n    os.write(1, b'within\\n')\n    yield {'x': X}\n"
        "def forks():\n    if os.fork() == 0: os._exit(0)\n    yield {'x': X}\ndef threads():\n    import threading, time\n    threading.Thread(target=time.sleep, args=(500,)).start()\n    yield {'x': X}\n",
    )
    which, right = draw.turn((
        ("leaves", REFUSED), ("leaves_late", REFUSED), ("exits", REFUSED), ("exits_one", REFUSED), ("none", REFUSED), ("nothing", REFUSED), ("fails", REFUSED), ("names", REFUSED), ("objects", REFUSED), ("text", REFUSED), ("number", REFUSED),
        ("deep", REFUSED), ("asks", REFUSED), ("interrupts", frozenset({2, 130})), ("closes", ANY), ("nope", REFUSED), ("forks", ANSWERED), ("threads", ANSWERED), ("prints", ANSWERED),
    ))  # fmt: skip
    verb = draw.turn((_COMPARE[:-1], _PREDICT[:-1], ("run", "model.onnx", "-o", "recording", "--inputs")))
    return Ask((*verb, f"l.py:{which}"), right, runs=True, writes=(*_LATER, "__pycache__"), stdout="file" if which != "closes" else "closing", stderr="file" if which != "closes" else "closing")


def same(folder: Path, draw: Draw) -> Ask:
    """Right command lines in unusual words: they are answered."""
    _world(folder)
    words = draw.turn((
        ("compare", "--quiet", "--inputs=samples", "--candidate=sim:f16", "model.onnx"), ("compare", "--candidate", "sim%3Af16".replace("%3A", ":"), "--inputs", "./samples/", "--", "model.onnx"), ("compare", "model.onnx", "--candidate", "saved?path=answers", "--inputs", "samples"),
        ("compare", "model.onnx", "--candidate", "saved:f16?path=%61nswers", "--inputs", "samples"), ("compare", "model.onnx", "--candidate", "ort?optimization=disabled", "--inputs", "samples"), (*_COMPARE, "--samples", "999999"),
        (*_COMPARE, "--seed", "5"), (*_COMPARE, "--memory", "1GiB"), ("lint", "model.onnx", "--formats", "f16"), ("predict", "model.onnx", "--inputs", "samples", "--formats", "bf16", "--quiet"), ("list", "metrics"), ("explain", "RNG001"),
    ))  # fmt: skip
    return Ask(words, COMPARED | {3})


def candidates_that_are_references(folder: Path, draw: Draw) -> Ask:
    """The same on both sides: said, and the verdict stands."""
    _world(folder)
    words = draw.turn((
        ("compare", "model.onnx", "--candidate", "ort", "--inputs", "samples"), ("diagnose", "model.onnx", "--candidate", "ort", "--inputs", "samples"), ("compare", "model.onnx", "--candidate", "ort?model=model.onnx", "--inputs", "samples"),
        ("compare", "model.onnx", "--candidate", "saved?path=answers", "--reference", "saved?path=answers", "--inputs", "samples"),
    ))  # fmt: skip
    return Ask(words, ANSWERED, after=lambda _, ending: "" if b"same" in (ending.out + ending.err) else "nobody is told that both sides are the same")


FAMILY = Family("options", (
    targets, backend_options, limits, numbers, shapes, names, verbs, places, plug_ins, shell, programs, loaders, same, candidates_that_are_references, names, targets, backend_options, programs, names, verbs, numbers, budgets, generated, budgets, nothing,
))  # fmt: skip
