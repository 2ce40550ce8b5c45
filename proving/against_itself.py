"""Diagnoses models against themselves: `python -m proving.against_itself [--count N] [--seed S] [--processes N] [--out FILE]`.

The models are the tests of the ONNX standard's own backend suite (`onnx.backend.test`, in the onnx package): every operator and
type, sequences, optionals, strings, bodies, functions, training. Plain ONNX Runtime is asked first what it runs. Whatever it
runs must end with 0, or with 3 where nothing could be compared or the answers are random by the model's own operators; the rest
may be refused. A traceback is never right.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import pkgutil
import random
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.loader import load_model_tests

_KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
_LIMIT_S = 120.0
_SHOWN = 30  # lines of what was said that are kept
_EXCUSED = ("nothing could be compared", "random by its own operators")
_OURS = ("Traceback", "the check itself failed")  # bugs of ours, whatever a command ends with
_WITHIN, _INCOMPLETE, _UNUSABLE, _HUNG = 0, 3, 2, -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a diagnosis ended.

    `status` is its exit code (-1: killed at the limit), `runs` whether plain ONNX Runtime runs the model, `fault` whether it
    showed a bug of ours.
    """

    name: str
    status: int
    runs: bool
    seconds: float
    said: str
    fault: bool

    @property
    def right(self) -> bool:
        """Whether that is one of the ways to end."""
        if self.fault:
            return False
        excused = self.status == _INCOMPLETE and any(words in self.said for words in _EXCUSED)
        return self.status == _WITHIN or excused or (not self.runs and self.status == _UNUSABLE)


def load_tests(count: int, seed: int) -> list[Any]:
    """So many tests (0: all), chosen by a seed, in the order of their names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [test for kind in _KINDS for test in load_model_tests(kind=kind)]
    unique = sorted({test.name: test for test in found}.values(), key=lambda test: str(test.name))
    return unique if not 0 < count < len(unique) else sorted(random.Random(seed).sample(unique, count), key=_name)


def diagnose_against_itself(test: Any, limit_s: float = _LIMIT_S) -> Ended:
    """How `diagnose` ends on a test's model and its data, both sides being ONNX Runtime, in a child process."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="itself-") as held:
        folder = Path(held)
        child = os.fork()
        if child == 0:
            os.setsid()
            os.environ.update(NO_COLOR="1", COLUMNS="140")
            with contextlib.suppress(BaseException):
                _redirect(folder / "said")
                os._exit(_diagnose(test, folder))
            os._exit(101)
        status = _waited(child, begun + limit_s)
        said = (folder / "said").read_text("utf-8", errors="replace") if (folder / "said").exists() else ""
        return Ended(
            name=test.name,
            status=status,
            runs=(folder / "runs").exists(),
            seconds=time.monotonic() - begun,
            said="\n".join(said.splitlines()[-_SHOWN:]),
            fault=any(words in said for words in _OURS),
        )


def _diagnose(test: Any, folder: Path) -> int:
    from parityscope.cli import main

    model, feeds = _written(test, folder)
    if _runs(model, feeds):
        (folder / "runs").touch()
    line = ["diagnose", str(model), "--candidate", "ort", "--study", str(folder / "study"), "--quiet"]
    given = _samples(feeds, folder)
    try:
        main([*line, *(["--inputs", str(given)] if given else [])])
    except SystemExit as ended:
        sys.stdout.flush()
        return int(ended.code or 0)
    return 101


def _written(test: Any, folder: Path) -> tuple[Path, dict[str, Any]]:
    """The model as a file, and the first data set by the names of the inputs."""
    if test.model_dir is None:
        path = folder / "model.onnx"
        onnx.save(test.model, path)
        proto, arrays = test.model, list(test.data_sets[0][0])
    else:
        path = Path(test.model_dir) / "model.onnx"
        proto = onnx.load(path)
        files = sorted(
            (Path(test.model_dir) / "test_data_set_0").glob("input_*.pb"), key=lambda one: int(one.stem.split("_")[1])
        )
        arrays = [_array(file.read_bytes(), value) for file, value in zip(files, proto.graph.input, strict=False)]
    held = {tensor.name for tensor in proto.graph.initializer}
    names = [value.name for value in proto.graph.input]
    names = names if len(names) == len(arrays) else [name for name in names if name not in held]
    return path, dict(zip(names, arrays, strict=False))


def _array(data: bytes, value: onnx.ValueInfoProto) -> Any:
    if value.type.HasField("tensor_type"):
        return onnx.numpy_helper.to_array(onnx.TensorProto.FromString(data))
    if value.type.HasField("sequence_type"):
        return onnx.numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    return onnx.numpy_helper.to_optional(onnx.OptionalProto.FromString(data))


def _runs(path: Path, feeds: dict[str, Any]) -> bool:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        asked = {value.name for value in session.get_inputs()}
        session.run(None, {name: _given(value) for name, value in feeds.items() if name in asked})
    except Exception:  # noqa: BLE001 - whatever it raises, it does not run it
        return False
    return True


def _given(value: Any) -> Any:
    """A value as ONNX Runtime takes it: types that numpy lacks by their bytes."""
    import onnxruntime as ort

    if isinstance(value, list):
        return [np.asarray(one) for one in value]
    array = np.asarray(value)
    if (array.dtype.kind != "V" and array.dtype.isbuiltin == 1) or array.dtype.kind in "OUS":
        return array
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(
        array.view(np.uint8 if array.itemsize == 1 else np.uint16), onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    )


def _samples(feeds: dict[str, Any], folder: Path) -> Path | None:
    """The data as a file of samples; None where no file of ours holds it, and inputs are generated."""
    from parityscope.trace import write_safetensors

    if not feeds or not all(isinstance(value, np.ndarray | np.generic) for value in feeds.values()):
        return None
    arrays = {name: np.asarray(value) for name, value in feeds.items()}
    if any(array.dtype == object for array in arrays.values()):
        arrays = {name: array.astype(str) if array.dtype == object else array for name, array in arrays.items()}
    if all(array.dtype.isbuiltin == 1 or array.dtype.kind == "U" for array in arrays.values()):
        np.savez(folder / "sample.npz", **arrays)
        return folder / "sample.npz"
    write_safetensors(folder / "sample.safetensors", arrays)
    return folder / "sample.safetensors"


def _redirect(path: Path) -> None:
    sink = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    sys.stdout.flush()
    for number in (1, 2):
        os.dup2(sink, number)


def _waited(child: int, deadline: float) -> int:
    """A child's exit code; -1 where it had to be killed."""
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return _HUNG


def _name(test: Any) -> str:
    return str(test.name)


def _imported() -> None:
    """Imports once what every child would; sessions, which have threads, are begun in the children only."""
    from parityscope.checks import known_checks

    for package in (
        "backends",
        "case",
        "cli",
        "comparison",
        "evaluation",
        "explanation",
        "hypotheses",
        "report",
        "study",
    ):
        for found in pkgutil.walk_packages(
            importlib.import_module(f"parityscope.{package}").__path__, f"parityscope.{package}."
        ):
            with contextlib.suppress(ImportError):
                importlib.import_module(found.name)
    for name in ("onnxruntime", "scipy.optimize", "scipy.special", "scipy.stats", "sympy"):
        importlib.import_module(name)
    known_checks()


def _run_all(tests: list[Any], processes: int, out: Path, limit_s: float) -> None:
    """Appends one line of JSON a test to `out`, `processes` tests at a time."""
    _imported()
    children = []
    for turn in range(processes):
        child = os.fork()
        if child == 0:
            for test in tests[turn::processes]:
                ended = diagnose_against_itself(test, limit_s)
                with out.open("a", encoding="utf-8") as sink:
                    sink.write(json.dumps({**asdict(ended), "right": ended.right}, ensure_ascii=False) + "\n")
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def main() -> int:
    """Runs the tests that `out` does not hold yet, tells what ended wrong, and counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="so many tests; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--limit", type=float, default=_LIMIT_S, help="seconds a test may take")
    parser.add_argument("--only", nargs="*", default=[], help="names of tests")
    parser.add_argument("--out", type=Path, default=None, help="a file of lines that is gone on with")
    asked = parser.parse_args()
    out = asked.out or Path(tempfile.mkdtemp(prefix="itself-")) / "ended.jsonl"
    tests = load_tests(0 if asked.only else asked.count, asked.seed)
    tests = [test for test in tests if not asked.only or test.name in asked.only]
    had = {json.loads(line)["name"] for line in out.read_text("utf-8").splitlines()} if out.exists() else set()
    _run_all([test for test in tests if test.name not in had], asked.processes, out, asked.limit)
    wanted = {test.name for test in tests}
    ended = [one for line in out.read_text("utf-8").splitlines() if (one := json.loads(line))["name"] in wanted]
    for one in (one for one in ended if not one["right"]):
        print(
            f"WRONG {one['name']}: {one['status']} after {one['seconds']:.1f} s\n  " + one["said"].replace("\n", "\n  ")
        )
    ways = Counter((one["status"], one["runs"], one["right"]) for one in ended)
    for (status, runs, right), count in sorted(ways.items()):
        asked_first = "run" if runs else "refused"
        print(f"{count:5} ended with {status}, {asked_first} by plain ONNX Runtime: {'right' if right else 'WRONG'}")
    print(
        f"{sum(one['right'] for one in ended)} of {len(ended)} right, {sum(one['seconds'] for one in ended):.0f} s; {out}"
    )
    return int(any(not one["right"] for one in ended))


if __name__ == "__main__":
    sys.exit(main())
