"""Logs: what builders and runners print, engines' layers and times, and what pretends to be one."""

from __future__ import annotations

import gzip
import json
import pickle
from typing import TYPE_CHECKING, Any

from proving.hostile.cases import ANSWERED, ANY, REFUSED, Ask, Draw, Family
from proving.hostile.making import NAMES, SPECIAL, Trap, small_model, special_file

if TYPE_CHECKING:
    from pathlib import Path

_HEAD = "&&&& RUNNING TensorRT.trtexec [TensorRT v100300] # trtexec --onnx=det.onnx --fp16 --verbose\n"
_TAIL = "&&&& PASSED TensorRT.trtexec [TensorRT v100300] # trtexec --onnx=det.onnx --fp16 --verbose\n"
_BODY = (
    "[08/20/2024-20:57:40] [I] Precision: FP32+FP16\n"
    "[08/20/2024-20:57:50] [W] [TRT] - 111 weights are affected by this issue: Detected subnormal FP16 values.\n"
    "[08/20/2024-20:57:50] [V] [TRT]   List of affected weights: batch_norm_0.w_2\n"
    "[08/20/2024-20:57:51] [V] [TRT] Engine Layer Information:\n"
    "Layer(CaskConvolution): Conv_0 + Relu_1, Tactic: 0x1, x[Half(1,3,8,8)] -> y[Half(1,8,8,8)]\n"
    "[08/20/2024-20:57:52] [I] [TRT] Engine generation completed in 9.5 seconds.\n"
)
_GOOD = _HEAD + _BODY + _TAIL


def _lines(draw: Draw, *files: str, options: tuple[str, ...] = ()) -> tuple[str, ...]:
    return ("log", *files, *options, *draw.turn(((), ("--format", "json"), ("--format", "html"))))


def _ask(folder: Path, draw: Draw, content: bytes | str, right: frozenset[int] = ANY) -> Ask:
    (folder / "build.log").write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    return Ask(_lines(draw, "build.log"), right)


def no_log(folder: Path, draw: Draw) -> Ask:
    """Files that are no log."""
    content = draw.turn((
        b"", b"\n" * 5000, b"\0" * 5000, draw.noise(5000), small_model().SerializeToString(), pickle.dumps(Trap(folder)), b"PK\x03\x04" + draw.noise(99),
        b"hello\n", b"<html><body>404</body></html>", b"\x7fELF" + draw.noise(999), b"ftrt" + draw.noise(999), b"{}", b"[]", b"null", b'{"a": 1}',
        "слова и слова\n".encode() * 99, b"\x1b[31m\n" * 99, b"\x1f\x8b", gzip.compress(b""), gzip.compress(draw.noise(99)), b"\x28\xb5\x2f\xfd" + draw.noise(50),
    ))  # fmt: skip
    return _ask(folder, draw, content, REFUSED)


def special(folder: Path, draw: Draw) -> Ask:
    """No regular file, first or second."""
    names = draw.turn((("build.log", "other.log"), ("other.log", "build.log"), ("build.log",)))
    (folder / "other.log").write_text(_GOOD)
    kind = draw.turn(SPECIAL)
    special_file(folder / "build.log", kind)
    return Ask(_lines(draw, *names), REFUSED, unprivileged=True)


def long_lines(folder: Path, draw: Draw) -> Ask:
    """One line of many megabytes, of every kind that is looked at."""
    size = draw.turn((1_000_000, 8_000_000))
    unit, head = draw.turn((
        (" + Relu", "Layer(CaskConvolution): Conv_0"), ("a,", "[V] [TRT]   List of affected weights: "), ("(", "Layer"), ("[", "[I] [TRT] "), ("x[Half(1)]", "Layer(A): b, Tactic: 0x1, "),
        ("1", "[W] [TRT] - "), (" ", "[I] Precision:"), ("-", "&&&& RUNNING TensorRT.trtexec [TensorRT v100300] # trtexec --"), ("-> ", "Layer(A): b, "), ("\x1b[0m", ""),
        ('"', "[E] [TRT] "), ("1:", ""), ("2024-01-01T00:00:00Z ", ""), ("/", "[08/20/2024-20:57:50] [W] "), ("'", "Detected layernorm nodes in FP16: "), ("=", "--"), ("é", "[I] "),
    ))  # fmt: skip
    return _ask(folder, draw, _HEAD + head + unit * (size // len(unit)) + "\n" + _BODY + _TAIL)


def many_lines(folder: Path, draw: Draw) -> Ask:
    """A line of each kind hundreds of thousands of times, the same or each another."""
    line = draw.turn((
        "Layer(CaskConvolution): Conv_%d + Relu_1, Tactic: 0x1, x[Half(1,3,8,8)] -> y%d[Half(1,8,8,8)]", "[V] [TRT] --------------- Timing Runner: Conv_%d (CaskConvolution[0x%d])",
        "[W] [TRT] - %d weights are affected by this issue: Detected subnormal FP16 values. %d", "[V] [TRT]   List of affected weights: w%d, v%d", "[E] [TRT] error %d: %d",
        "[W] [TRT] something unknown %d happened %d", "[I] Input binding for x%d with dimensions %d is created.", "[V] [TRT] ConstShuffleFusion: Fusing a%d with b%d",
        "&&&& RUNNING TensorRT.trtexec [TensorRT v100300] # trtexec --onnx=%d.onnx --a=%d", "[V] [TRT] Parsing node: n%d [Conv%d]", "[V] [TRT] Registering tensor: t%d for ONNX tensor: t%d",
        "[V] [TRT] Adding reformat layer: Reformatted Input Tensor %d to Conv_%d (x) from Float(1) to Half(1)", "%d %d", "[V] [TRT] Tactic: 0x%d Time: 0.%d",
        "[W] [TRT] Detected layernorm nodes in FP16: a%d, b%d", "[V] [TRT] Engine Layer Information: %d %d", "[08/20/2024-20:57:50] [I] Layer%d : %d ms",
    ))  # fmt: skip
    count = draw.turn((20_000, 150_000))
    return _ask(folder, draw, _HEAD + "".join(f"{line % (n, n)}\n" for n in range(count)) + _BODY + _TAIL)


def patterns(folder: Path, draw: Draw) -> Ask:
    """Texts that patterns go back and forth in: beginnings of what is looked for, thousands of times, never ended."""
    unit = draw.turn((
        "[08/20/2024-20:57:50] ", "[TRT] ", "[V] [TRT] ", "docker-compose-1  | ", "2024-08-20T20:57:50.000000000Z ", "[I] [W] [E] ", "Aug 20 20:57:50 host app[1]: ",
        "pod/a container ", "Layer(", "Layer(A): ", " + ", ", Tactic: ", "x[Half(", "{ForeignNode[", "...", "fused_", "PWN(", "[ONNX Layer: ", " || ", "node_of_", "Reformatting CopyNode for ",
    ))  # fmt: skip
    count = draw.turn((400, 20_000, 200_000))
    return _ask(folder, draw, _HEAD + unit * count + draw.turn(("", "!\n", "\nLayer(A): b\n", "]\n")) + _BODY)


def bombs(folder: Path, draw: Draw) -> Ask:
    """Archives that unpack to gigabytes, or to one another."""
    which = draw.turn(("zeros", "lines", "twice", "cut", "newlines", "blank"))
    if which == "zeros":
        content = gzip.compress(b"\0" * (1 << 28)) * 8
    elif which == "lines":
        content = gzip.compress(_HEAD.encode()) + gzip.compress(b"[V] [TRT] Tactic: 0x1 Time: 0.1\n" * (1 << 21)) * 12
    elif which == "twice":
        content = gzip.compress(gzip.compress(_GOOD.encode()))
    elif which == "blank":
        content = gzip.compress(b"\n" * (1 << 26)) * 4
    elif which == "newlines":
        content = gzip.compress(_HEAD.encode()) + gzip.compress(b"\n" * (1 << 26)) * 4
    else:
        content = gzip.compress(_GOOD.encode())[: draw.integer(12, 200)]
    return _ask(folder, draw, content, REFUSED if which in {"zeros", "twice", "blank"} else ANY)


def harmful(folder: Path, draw: Draw) -> Ask:
    """Names of layers and weights that a terminal or a page would obey."""
    name = draw.turn(NAMES)
    text = _BODY.replace("Conv_0", name).replace("batch_norm_0.w_2", name).replace("[Half(1,8,8,8)]", f"[Half(1)] {name}")
    return _ask(folder, draw, _HEAD.replace("det.onnx", name) + text + f"[E] [TRT] {name}\n" + _TAIL)


def encodings(folder: Path, draw: Draw) -> Ask:
    """Encodings that other tools write, and bytes that none does."""
    which = draw.turn(("utf-16", "utf-16-le", "utf-32", "latin-1", "bom", "odd", "mixed", "surrogate", "nul", "cr"))
    text = _GOOD.replace("det", "dét")
    content = {
        "bom": b"\xef\xbb\xbf" + text.encode(), "odd": text.encode("utf-16")[:-1], "mixed": text.encode() + text.encode("utf-16"), "nul": text.replace("\n", "\0\n").encode(),
        "surrogate": text.encode().replace(b"Conv_0", b"\xed\xa0\x80"), "cr": text.replace("\n", "\r").encode(),
    }.get(which)  # fmt: skip
    return _ask(folder, draw, content if content is not None else text.encode(which))


def numbers(folder: Path, draw: Draw) -> Ask:
    """Numbers that are none, or too large for any use."""
    huge = draw.turn(("9" * 5000, "-1", "1e999", "nan", "٣", "0x" + "f" * 5000, "", "1.2.3.4", "18446744073709551616", "inf"))
    text = _BODY.replace("111 weights", f"{huge} weights").replace("in 9.5 seconds", f"in {huge} seconds").replace("1,3,8,8", f"{huge},{huge}")
    text += f"[I] [TRT] [MemUsageChange] Init CUDA: CPU +{huge}, GPU +{huge}, now: CPU {huge}, GPU {huge} (MiB)\n[I] Latency: min = {huge} ms, max = {huge} ms, mean = {huge} ms\n"
    return _ask(folder, draw, _HEAD.replace("100300", huge) + text + _TAIL)


def two(folder: Path, draw: Draw) -> Ask:
    """Two logs of which one is none, is huge, or is the same."""
    (folder / "a.log").write_text(_GOOD)
    content = draw.turn((b"", _GOOD.encode(), _HEAD.encode(), b"\xff" * 999, _GOOD.encode() * 5000, (_HEAD + "Layer(A): " + " + ".join(f"n{i}" for i in range(50_000)) + "\n" + _TAIL).encode()))
    (folder / "b.log").write_bytes(content)
    names = draw.turn((("a.log", "b.log"), ("b.log", "a.log")))
    return Ask(_lines(draw, *names), REFUSED if content in {b"", b"\xff" * 999} else ANY)


def layers(folder: Path, draw: Draw) -> Ask:
    """Layers of an engine as JSON that are none."""
    good = {"Name": "Conv_0", "LayerType": "CaskConvolution", "Inputs": [], "Outputs": [], "Metadata": "[ONNX Layer: Conv_0]"}
    document: Any = draw.turn((
        {"Layers": None}, {"Layers": 3}, {"Layers": {}}, {"Layers": [None]}, {"Layers": [3]}, {"Layers": [[]]}, {"Layers": [{}]}, {"Layers": [{**good, "Name": None}]},
        {"Layers": [{**good, "Inputs": None}]}, {"Layers": [{**good, "Inputs": [3]}]}, {"Layers": [{**good, "Inputs": [{"Name": 3, "Dimensions": "x"}]}]},
        {"Layers": [{**good, "Name": name} for name in NAMES]}, {"Layers": [{**good, "Metadata": "\x1e" * 100_000}]}, {"Layers": [{**good, "Metadata": "[ONNX Layer: " * 50_000}]},
        {"Layers": [good] * 50_000}, {"Layers": [{**good, "Outputs": [{"Name": "y", "Dimensions": [10**400]}]}]}, {"Bindings": []}, {"Layers": [], "Bindings": "x"},
        {"Layers": [{**good, "Name": " + ".join(["x"] * 100_000)}]}, {"Layers": ["Conv_0"]}, {"Layers": [{**good, "LayerType": ["a"]}]}, {"Layers": [{**good, "Name": "\ud800"}]},
    ))  # fmt: skip
    (folder / "layers.json").write_text(json.dumps(document))
    files = draw.turn((("layers.json",), ("layers.json", "layers.json"), ("other.log", "layers.json")))
    (folder / "other.log").write_text(_GOOD)
    return Ask(_lines(draw, *files), ANY)


def layers_raw(folder: Path, draw: Draw) -> Ask:
    """JSON of layers that is none, or costs more than it says."""
    content = draw.turn((
        b'{"Layers": [', b'{"Layers": ' + b"[" * 100_000, b'{"Layers": ' + b"9" * 200_000 + b"}", b"[" * 100_000, b'{"a":' * 50_000, b'{"Layers": NaN}', b'{"Layers": []}x',
        b"\xff\xfe{", b'{"Layers": "' + b"x" * 30_000_000 + b'"}', b'[{"count": 1}]', b'{"Layers": [' + b"{}," * 300_000 + b"{}]}",
    ))  # fmt: skip
    (folder / "layers.json").write_bytes(content)
    return Ask(_lines(draw, "layers.json"), ANY - {0} if content[-4:] != b"{}]}" else ANY)


def times(folder: Path, draw: Draw) -> Ask:
    """Times of layers that are none."""
    good = {"Layers": [{"Name": "Conv_0", "LayerType": "CaskConvolution", "Inputs": [], "Outputs": [], "Metadata": "[ONNX Layer: Conv_0]"}]}
    (folder / "layers.json").write_text(json.dumps(good))
    entry = {"name": "Conv_0", "timeMs": 1.0, "averageMs": 0.1, "percentage": 100}
    content = draw.turn((
        "", "[", "{}", "[]", "null", "[3]", "[" * 90_000, json.dumps([{"count": 3}]), json.dumps([{"count": 3}, {}]), json.dumps([{"count": "x"}, entry]), json.dumps([{"count": -1}, entry]),
        json.dumps([{"count": 3}, {**entry, "averageMs": "x"}]), json.dumps([{"count": 3}, {**entry, "averageMs": float("nan")}]), json.dumps([{"count": 3}, {**entry, "averageMs": -1}]),
        json.dumps([{"count": 3}, {**entry, "averageMs": 10**400}]), json.dumps([{"count": 3}, {**entry, "name": 3}]), json.dumps([{"count": 3}, {**entry, "name": "\x1b[2J"}]),
        json.dumps([{"count": 0}, entry]), json.dumps([{"count": 3}, *[entry] * 50_000]), json.dumps([{"count": 3}, {**entry, "averageMs": True}]),
    ))  # fmt: skip
    (folder / "times.json").write_text(content)
    return Ask(_lines(draw, "layers.json", options=("--profile", "times.json")), ANY)


def times_elsewhere(folder: Path, draw: Draw) -> Ask:
    """Options of logs that do not fit together, or lead nowhere."""
    (folder / "a.log").write_text(_GOOD)
    (folder / "there.json").write_text("mine")
    words = draw.turn((
        ("a.log", "--profile", "nope.json"), ("a.log", "--profile", "a.log", "--profile", "a.log"), ("a.log", "--node-times", "x.json"), ("a.log", "-o", "x.pdf"), ("a.log", "-o", "/proc/x.html"),
        ("a.log", "a.log", "--node-times", "nowhere/x.json"), ("a.log", "-o", "/dev/full"), ("a.log", "--format", "evil"), ("nope.log",), ("a.log", "nope.log"),
        ("a.log", "a.log", "a.log"), ("a.log", "--profile", "/dev/zero"), ("", ""), ("a.log", "-o", ""), ("--", "-"), ("x" * 5000,),
    ))  # fmt: skip
    return Ask(("log", *words))


def cut(folder: Path, draw: Draw) -> Ask:
    """Logs that break off, or begin in the middle: read as far as they go, and never a clean 0 without an end."""
    text = _GOOD.encode()
    place = draw.integer(len(_HEAD) + 40, len(text) - len(_TAIL) - 60)
    if draw.turn((True, False)):
        return _ask(folder, draw, text[:place], ANY - {0})
    return _ask(folder, draw, text[place:], ANY)


def wrapped(folder: Path, draw: Draw) -> Ask:
    """Right logs as other programs pass them on."""
    prefix = draw.turn(("2024-08-20T20:57:50.000000000Z ", "web-1  | ", "Aug 20 20:57:50 host app[1]: ", "\x1b[32m", "", "build\tUNKNOWN STEP\t2024-08-20T20:57:50.0000000Z "))
    text = "".join(f"{prefix}{line}\n" for line in _GOOD.splitlines())
    which = draw.turn(("plain", "gzip", "windows", "utf-16"))
    content = text.replace("\n", "\r\n").encode() if which == "windows" else text.encode("utf-16" if which == "utf-16" else "utf-8")
    return _ask(folder, draw, gzip.compress(content) if which == "gzip" else content, ANSWERED)


def prefixes(folder: Path, draw: Draw) -> Ask:
    """Prefixes on prefixes on prefixes."""
    depth = draw.turn((2, 40, 3000))
    prefix = "".join(draw.pick(("2024-08-20T20:57:50Z ", "web-1  | ", "\x1b[32m", "[pod/a/b] ", "Aug 20 20:57:50 host app[1]: ")) for _ in range(depth))
    return _ask(folder, draw, "".join(f"{prefix}{line}\n" for line in _GOOD.splitlines() * (1 if depth > 1000 else 50)))


def mutated(folder: Path, draw: Draw) -> Ask:
    """A right log with lines repeated, exchanged, and bytes changed."""
    lines = _GOOD.splitlines(keepends=True) * draw.turn((1, 30))
    for _ in range(draw.integer(1, 30)):
        first, second = draw.integer(0, len(lines) - 1), draw.integer(0, len(lines) - 1)
        lines[first], lines[second] = lines[second], lines[first]
    held = bytearray("".join(lines).encode())
    for _ in range(draw.integer(0, 40)):
        held[draw.integer(0, len(held) - 1)] = draw.integer(0, 255)
    return _ask(folder, draw, bytes(held))


FAMILY = Family("logs", (
    no_log, special, long_lines, many_lines, patterns, bombs, harmful, encodings, numbers, two, layers, layers_raw, times, times_elsewhere, cut, wrapped, prefixes,
    mutated, patterns, no_log, layers,
))  # fmt: skip
