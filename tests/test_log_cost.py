"""A log costs what its length costs, whatever stands in it; numbers are those of the processor's time, not of a clock."""

from __future__ import annotations

import gzip
import json
import time
from typing import TYPE_CHECKING

import pytest

from command_line import exit_status
from parityscope.errors import ParityError
from parityscope.logs import compare_logs, find_in_log, find_pair, read_log
from parityscope.logs.names import parts_of

if TYPE_CHECKING:
    from pathlib import Path

LENGTH = 200_000  # what looks at every place from every place takes minutes for it
PROCESSOR_S = 10.0  # what is linear takes hundredths
HEAD = "&&&& RUNNING TensorRT.trtexec [TensorRT v8601] # trtexec --onnx=m.onnx"
PROFILE = "=== Profile (10 iterations ) ===\n   Layer   Time (ms)   Avg. Time (ms)   Time %"

# The beginning of a line, what is repeated, and its end.
LINES = {
    "blanks in a row of a profile": (f"{PROFILE}\nconv", " ", "x"),
    "numbers in a row of a profile": (f"{PROFILE}\nconv  ", "1 ", "x"),
    "inputs that do not end": ("", "[V] Adding network input: a with dtype: float32, dimensions: (", ""),
    "bindings": ("[I] ", "Created input binding for ", ""),
    "refused nodes": ("[E] ", "In node 3 with name: n and operator: Foo ", ""),
    "tensors of a layer": ("[V] Layer(Conv): a, Tactic: 0x0, ", "x, ", ""),
    "types of a layer": ("[V] Layer(Conv): a, Tactic: 0x0, ", "x[Half[", ""),
    "tensors of a detailed layer": ("[V] Name: a, LayerType: B, Inputs: [", "{ Name: ", "], Outputs: []"),
    "dimensions": ("[V] Name: a, LayerType: B, Inputs: [{ Name: a", ", Dimensions: [1]", "], Outputs: []"),
    "metadata": ("[V] ForeignNode a metadata: ", "[ONNX Layer: ", ""),
    "metadata without an end": ("[V] ForeignNode a metadata: ", "[ONNX Layer: a] b", ""),
    "wrapped names": ("[V] Layer(Conv): ", "PWN(", "), Tactic: 0x0, a[Half(1)] -> b[Half(1)]"),
    "wrapped names that end": ("[V] Layer(Conv): " + "PWN(" * 20_000 + "a", ")", ", Tactic: 0x0, a[Half(1)] -> b"),
    "letters of a time": ("Latency: ", "a", ""),
    "tactic sources": ("[I] ", "Tactic Sources | [", ""),
    "versions": ("[E] ", "a ", " is not available on TensorRT version "),
    "brackets before a meaning": ("[E] ", "(", " requires bool I/O but node can not be handled by Myelin"),
    "blanks before a meaning": ("[E] (", " ", "b requires bool I/O but node can not be handled by Myelin"),
    "outputs left out": ("[W] ", "For output: '", "skipping corresponding output"),
    "quotes of an output": ("[W] For output: ", "'", "skipping corresponding"),
    "shapes": ("[W] ", "Input tensor: a ", "No shapes provided; Will use shape"),
    "requests": ("[W] ", "No implementation of layer ", "obeys the requested constraints"),
    "stamps": ("", "2026-08-20T20:57:40.123Z stderr F ", ""),
    "tables": ("", "2026-08-20T20:57:40.123Z ", "\ta"),
    "colours": ("", "\x1b[", ""),
    "brackets": ("", "[", ""),
    "carriage returns": ("", "\r", ""),
}


def processor_s(work: object) -> float:
    begun = time.thread_time()
    assert callable(work)
    work()
    return time.thread_time() - begun


@pytest.mark.parametrize("parts", LINES.values(), ids=LINES)
def test_a_long_line_costs_its_length(tmp_path: Path, parts: tuple[str, str, str]) -> None:
    begin, unit, end = parts
    log = tmp_path / "a.log"
    log.write_text(f"{HEAD}\n{begin}{unit * (LENGTH // len(unit))}{end}\n", encoding="utf-8")
    assert processor_s(lambda: find_in_log(read_log(log))) < PROCESSOR_S


@pytest.mark.parametrize(
    "line",
    [
        f"&&&& RUNNING TensorRT.trtexec [TensorRT v{'1' * 5000}] # trtexec",
        f"[V] After some step: {'1' * 5000} layers",
        f"[W] - {'1' * 5000} weights are affected by this issue: Detected subnormal FP16 values.",
        "Latency: min = 1.2.3 ms, max = . ms",
        f"{PROFILE}\nconv  ...  1.2.3  ..  .",
        f"{PROFILE}\nconv  {'9' * 400}  {'9' * 400}  {'9' * 400}  1%",
    ],
)
def test_numbers_that_are_none_are_text(tmp_path: Path, line: str) -> None:
    log = tmp_path / "a.log"
    log.write_text(f"{HEAD}\n{line}\n", encoding="utf-8")
    assert exit_status("log", str(log), "--format", "json", "-o", str(tmp_path / "a.json"), "--quiet") in {0, 1, 3}
    json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))


def test_names_that_are_wrapped_without_end_stay_as_they_are() -> None:
    assert parts_of("PWN(" * 100_000 + ")" * 100_000) != ()
    assert parts_of("PWN(PWN(a), b)") == ("a", "b")


def test_precisions_asked_for_are_not_held_against_every_layer(tmp_path: Path) -> None:
    names = [f"n{index}" for index in range(6000)]
    asked = ",".join(f"{name}:fp32" for name in names)
    layers = "\n".join(f"[V] Layer(Conv): {name}, Tactic: 0x0, x[Half(1)] -> y[Half(1)]" for name in names)
    log = tmp_path / "a.log"
    log.write_text(f"{HEAD} --layerPrecisions={asked}\n{layers}\n", encoding="utf-8")
    found = []
    assert processor_s(lambda: found.extend(find_in_log(read_log(log)))) < PROCESSOR_S
    (one,) = [finding for finding in found if finding.code == "CST204"]
    assert one.details["nodes"] == names


def test_two_logs_of_many_layers_are_compared(tmp_path: Path) -> None:
    logs = []
    for word in ("Half", "Float"):
        lines = [f"[V] Layer(Conv): n{i}, Tactic: 0x0, x[{word}(1)] -> y[{word}(1)]" for i in range(20_000)]
        logs.append(tmp_path / f"{word}.log")
        logs[-1].write_text("\n".join((HEAD, *lines)), encoding="utf-8")
    assert processor_s(lambda: find_pair(compare_logs(*map(read_log, logs)))) < PROCESSOR_S


def test_a_text_without_a_line_of_tensorrt_is_given_up(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"a\n" * 600_000 + b"[W] too late\n")
    with pytest.raises(ParityError, match="none of its first 500000 lines"):
        read_log(log)


def test_empty_lines_without_end_are_given_up(tmp_path: Path) -> None:
    log = tmp_path / "empty.log"
    log.write_bytes(gzip.compress(b"\n" * (1 << 23)))
    with pytest.raises(ParityError, match="none of its first 500000 lines"):
        read_log(log)


def test_a_compressed_log_that_expands_without_end_is_read_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parityscope.logs.lines.ALWAYS", 1 << 20)
    log = tmp_path / "a.log.gz"
    log.write_bytes(gzip.compress(f"{HEAD}\n".encode() + b"[V] Tactic: 0x0\n" * (1 << 20)))
    found = read_log(log)
    assert found.lines < 1 << 20
    assert any("more than 100 times its size" in skip.reason for skip in found.skipped)
