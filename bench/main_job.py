"""`make bench`: the cost of the main job against plain inference and against Polygraphy on the same work.

On the PP-OCRv4 detector and a 768x384 page:

1. one inference that returns all intermediate tensors (the unit), and one plain inference;
2. comparing all tensors of two traces on disk with every metric, and the severed replay (page cache warm; opening
   sessions and loading kernels shown beside it), with the peak memory of the process that does it;
3. `parityscope compare --all-tensors` of two ONNX Runtime targets as a whole process against `polygraphy run` of the same
   two, both warm, the first (cold) run shown beside it.

Prints a table in Markdown; nothing is asserted.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROUNDS = 5
KEPT = 4  # runs whose results stay in memory, 0.5 GiB each
SIZE = (768, 384)
ENVIRONMENT = {**os.environ, "POLYGRAPHY_AUTOINSTALL_DEPS": "0"}
_opened_by: dict[str, Any] = {}  # what was wrapped


def main() -> None:
    from parityscope.case.formats.npz import write_npz
    from proving.models.fetching import model_path, ocr_det_input, page_image

    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch, "page.npz")
        write_npz(page, ocr_det_input(page_image(), SIZE))
        model = model_path("ocr-det")
        child = subprocess.run(
            [sys.executable, __file__, "inner", str(model), str(page), scratch],
            check=True,
            capture_output=True,
            text=True,
        )
        print(child.stdout)
        whole_processes(model, page, Path(scratch))


def inner(model_path: str, page: str, scratch: str) -> None:
    """Part 1 and 2, in a process of its own whose peak memory counts only them."""
    from parityscope.backends.recording import RecordingRequest, observable_tensors, record_trace
    from parityscope.backends.targets import parse_target
    from parityscope.case import load_inputs, load_model

    model = load_model(model_path)
    inputs = load_inputs(model, page, spool=Path(scratch, "spool"))
    names = tuple(observable_tensors(model))
    if not Path(scratch, "done").exists():
        # The traces are written by another process, so that its memory is not counted here.
        if os.environ.get("PARITYSCOPE_BENCH_RECORD"):
            for label, target in (("reference", "ort"), ("candidate", "sim:f16?overflow=saturate")):
                request = RecordingRequest(samples=(0,), tensors=names, folder=Path(scratch, "traces"), label=label)
                record_trace(model, inputs, parse_target(target), request)
            return
        subprocess.run(
            [sys.executable, __file__, "inner", model_path, page, scratch],
            check=True,
            env={**ENVIRONMENT, "PARITYSCOPE_BENCH_RECORD": "1"},
        )
        Path(scratch, "done").touch()
    passes(model, inputs, scratch)


def passes(model, inputs, scratch: str) -> None:  # noqa: ANN001 - records of the package
    from parityscope.localization import LocalizationOptions, localize
    from parityscope.records import Target
    from parityscope.study.layers import compare_traces
    from parityscope.trace import Trace, read_safetensors

    def trace(label: str) -> Trace:
        tensors = {}
        for path in sorted(Path(scratch, "traces").glob(f"{label}-*.safetensors")):
            tensors.update({(0, name): held for name, held in read_safetensors(path).items()})
        names = tuple(name for _, name in tensors)
        return Trace(
            target=Target(backend="ort"),
            environment={},
            samples=(0,),
            names=names,
            outputs=(),
            disturbs="none",
            tensors=tensors,
        )

    from parityscope.case import Case
    from parityscope.records import Policy

    case = Case(name="bench", model=model, inputs=inputs, policy=Policy())
    reference, candidate = trace("reference"), trace("candidate")
    pairing = {name: name for name in reference.names}
    nbytes = sum(held.nbytes for held in reference.tensors.values())
    rows = {"compare": [], "replay": [], "opening sessions": []}
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        found, _skips = compare_traces(case, reference, candidate, pairing, lambda *_: None)
        middle = time.perf_counter()
        opened = _timed_sessions()
        localize(model, inputs, reference, candidate, pairing, LocalizationOptions())
        rows["compare"].append(middle - start)
        rows["opening sessions"].append(sum(opened))
        rows["replay"].append(time.perf_counter() - middle - sum(opened))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    kept, unit, plain = plain_inference(model, inputs)
    compared, replayed = (statistics.median(rows[key][1:]) for key in ("compare", "replay"))
    print(f"{len(found)} float tensors, {nbytes / 2**20:.0f} MiB a trace\n")
    print("| what | seconds (median of 5) | in inferences, results kept | in inferences, memory used again |")
    print("|---|---|---|---|")
    for name, seconds in (
        ("plain inference", plain),
        ("inference that returns all tensors, results kept", kept),
        ("inference that returns all tensors, memory used again", unit),
        ("comparison of two traces, every metric", compared),
        ("severed replay, measured against both sides", replayed),
        ("both together", compared + replayed),
        ("beside it: opening the replay's sessions", statistics.median(rows["opening sessions"][1:])),
        ("beside it: first pass of all (kernels loaded)", sum(values[0] for values in rows.values())),
    ):
        print(f"| {name} | {seconds:.3f} | {seconds / kept:.2f} | {seconds / unit:.2f} |")
    print(f"\npeak memory of comparison and replay: {peak:.2f} GiB with --memory 512MiB\n")


def _timed_sessions() -> list[float]:
    """Seconds that are spent opening sessions from here on, collected by wrapping how ONNX Runtime opens one."""
    import onnxruntime as ort

    seconds: list[float] = []
    opening = _opened_by.setdefault("plain", ort.InferenceSession.__init__)

    def timed(*words, **options):  # noqa: ANN002, ANN003, ANN202 - passes everything on
        start = time.perf_counter()
        try:
            opening(*words, **options)
        finally:
            seconds.append(time.perf_counter() - start)

    ort.InferenceSession.__init__ = timed
    return seconds


def plain_inference(model, inputs) -> tuple[float, float, float]:  # noqa: ANN001 - records of the package
    """Seconds of one inference that returns all tensors as numpy arrays, and of one that returns outputs (medians, warm).

    The first twice: with its results kept, as they must be to be compared or stored (each run writes fresh memory), and
    with the results of the run before dropped, so that the runtime writes the same memory again.
    """
    import onnx_ir as ir
    import onnxruntime as ort

    from parityscope.backends.recording import observable_tensors
    from parityscope.case.deriving import mark_outputs

    graph = model.graph()
    mark_outputs(graph, [*(value.name for value in model.outputs), *observable_tensors(model)])
    everything = ort.InferenceSession(ir.to_proto(graph).SerializeToString())
    plain = ort.InferenceSession(str(model.path))
    arrays = dict(inputs.sample(0).arrays)
    times = []
    for session in (everything, plain):
        runs = []
        for _ in range(ROUNDS + 2):
            start = time.perf_counter()
            session.run(None, arrays)
            runs.append(time.perf_counter() - start)
        times.append(statistics.median(runs[2:]))
    held, runs = [], []
    for _ in range(KEPT):
        start = time.perf_counter()
        held.append(everything.run(None, arrays))
        runs.append(time.perf_counter() - start)
    return statistics.median(runs[1:]), times[0], times[1]


def whole_processes(model: Path, page: Path, scratch: Path) -> None:
    import numpy as np

    from parityscope.case.formats import polygraphy

    array = np.load(page)["x"]
    data = scratch / "inputs.json"
    polygraphy.write_inputs(data, [{"x": array}])
    tool = Path(sys.executable).with_name("polygraphy")
    theirs = [str(tool), "run", str(model), "--onnxrt", "--onnxrt", "--onnx-outputs", "mark", "all", "--load-inputs"]
    theirs += [str(data)]
    study = scratch / "study"
    ours = [sys.executable, "-m", "parityscope", "compare", str(model), "--candidate", "ort", "--inputs", str(page)]
    ours += ["--all-tensors", "--study", str(study), "--format", "json"]
    figures = {}
    for name, words in (("parityscope compare --all-tensors", ours), ("polygraphy run, mark all", theirs)):
        runs = []
        for _ in range(4):
            shutil.rmtree(study, ignore_errors=True)
            runs.append(timed(words))
        figures[name] = runs
    print("| whole process, the same two runs | cold s | warm s (median of 3) | peak memory |\n|---|---|---|---|")
    for name, runs in figures.items():
        warm = statistics.median(seconds for seconds, _ in runs[1:])
        print(f"| {name} | {runs[0][0]:.2f} | {warm:.2f} | {max(peak for _, peak in runs):.2f} GiB |")
    mine, other = (statistics.median(seconds for seconds, _ in runs[1:]) for runs in figures.values())
    print(f"\nratio: {other / mine:.1f}")


def timed(words: list[str]) -> tuple[float, float]:
    """Seconds and peak memory in GiB of a whole process."""
    start = time.perf_counter()
    code = (
        "import json, resource, subprocess, sys; "
        "s = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode; "
        "print(json.dumps([s, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    status, peak = json.loads(done.stdout)
    if status not in {0, 1}:
        raise SystemExit(f"{words} ended with {status}")
    return time.perf_counter() - start, peak / 2**20


if __name__ == "__main__":
    if sys.argv[1:2] == ["inner"]:
        inner(*sys.argv[2:5])
    else:
        main()
