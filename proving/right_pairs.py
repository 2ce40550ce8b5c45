"""Right twins of trained models, of which nothing may be blamed: `python -m proving.right_pairs [--whole] [--only MODEL ...]`.

Each model of the catalogue gets the files that other people's tools make of it: every tensor renamed, another opset, ONNX
Runtime's optimized graphs, FP16, results rounded through FP16 and BF16, quantized in three ways. The graphs are compared as
`diagnose` does it first (EXP005); with `--whole` the whole of `diagnose` is run. Blamed is what a finding would call a cause: a
difference that makes at least a hundredth of an error that is no rounding, and that the file's own types do not say.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from parityscope.backends.onnxruntime_sessions import open_path
from parityscope.case import load_model
from parityscope.errors import ParityError
from parityscope.hypotheses.from_other_graph import SideOutputs, compare_graphs
from proving.models.fetching import Unavailable, fetch
from proving.models.samples import SAMPLES, sample_of
from proving.rounds.deployments import deploy

_MODELS = ("ocr-cls", "pitch", "magika", "vad-18", "vad", "dnsmos", "plcmos", "ocr-det", "ocr-rec", "layout")
_TWINS = (
    "renamed",
    "opset",
    "folded",
    "optimized",
    "all",
    "half",
    "float16",
    "bfloat16",
    "dynamic",
    "qdq",
    "qoperator",
)
_TELLS = 0.01  # of the squared error, as in `checks.other_graph`
_SAME = 1e-4  # relative L2 that a runtime's own optimizer may make


def make_twin(kind: str, path: Path, folder: Path, samples: list[dict[str, np.ndarray]]) -> Path:
    """The file of a right twin."""
    made = folder / f"{kind}.onnx"
    if kind in {"qdq", "qoperator"}:
        return _quantized(kind, path, made, samples)
    if kind == "all":
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.optimized_model_filepath = str(made)
        ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return made
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        onnx.save(deploy(kind, onnx.load(path), path), made)
    return made


def _quantized(kind: str, path: Path, made: Path, samples: list[dict[str, np.ndarray]]) -> Path:
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc] # its base class is not typed
        """The samples, once."""

        def __init__(self) -> None:
            self.left = iter(samples)

        def get_next(self) -> Any:
            """The next sample, None behind the last."""
            return next(self.left, None)

    form = quantization.QuantFormat.QDQ if kind == "qdq" else quantization.QuantFormat.QOperator
    quantization.quantize_static(path, made, Reader(), quant_format=form, per_channel=kind == "qdq", reduce_range=True)
    return made


def blamed_by_graphs(path: Path, twin: Path, samples: list[dict[str, np.ndarray]]) -> tuple[str, list[str]]:
    """A word for what the comparison of the graphs came to, and what it would blame."""
    reference = load_model(path)
    names = [value.name for value in reference.outputs]
    runs = [open_path(one, outputs=names, optimization="disabled") for one in (path, twin)]
    held = [SideOutputs(inputs=one, reference=dict(runs[0](one)), candidate=dict(runs[1](one))) for one in samples]
    try:
        decision = compare_graphs(reference, load_model(twin), held).decision
    except ParityError as error:
        return ("same" if "compute the same" in error.problem else f"not compared: {error.problem}"), []
    apart = max(_apart(one.reference[name], one.candidate[name]) for one in held for name in names)
    told = [] if apart <= _SAME else [(unit, share) for unit, share in decision.causes if share >= _TELLS]
    words = [f"{unit.differences[0].words}{unit.note} ({share:.0%})" for unit, share in told if not unit.declared]
    return f"outputs {apart:.1e} apart, {decision.explained:.0%} explained", words


def blamed_by_diagnosis(path: Path, twin: Path, folder: Path) -> tuple[str, list[str]]:
    """The verdict of `diagnose`, and what it calls a cause."""
    from parityscope.cli import main

    line = ["diagnose", str(path), "--inputs", str(folder / "samples"), "--candidate", f"ort?model={twin}", "--quiet"]
    out = folder / f"{twin.stem}.json"
    child = os.fork()
    if child == 0:
        sink = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(sink, 1)
        with contextlib.suppress(BaseException):
            main([*line, "--format", "json", "--study", str(folder / f"study-{twin.stem}")])
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
    document = json.loads(out.read_text("utf-8"))
    causes = [one for one in document["findings"] if one["role"] == "cause"]
    return document["verdict"], [f"{one['code']} {one['claim'][:160]}" for one in causes]


def _apart(reference: np.ndarray, candidate: np.ndarray) -> float:
    if reference.shape != candidate.shape:
        return float("inf")
    size = float(np.linalg.norm(reference.astype(np.float64)))
    return float(np.linalg.norm(candidate.astype(np.float64) - reference)) / (size or 1.0)


def main() -> int:
    """Makes the twins, tells each that is blamed, and counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--whole", action="store_true", help="run the whole of diagnose")
    parser.add_argument("--only", nargs="*", default=list(_MODELS), help="models of the catalogue")
    parser.add_argument("--twins", nargs="*", default=list(_TWINS))
    asked = parser.parse_args()
    pairs, wrong, models = 0, 0, set()
    for name in (one for one in asked.only if one in SAMPLES):
        with tempfile.TemporaryDirectory(prefix="pairs-") as held:
            folder = Path(held)
            try:
                path, sample = fetch(name), dict(sample_of(name))
            except Unavailable as reason:
                print(f"{name}: {reason}")
                continue
            (folder / "samples").mkdir()
            np.savez(folder / "samples" / "0.npz", **sample)
            for kind in asked.twins:
                begun = time.monotonic()
                try:
                    with contextlib.redirect_stdout(io.StringIO()):
                        twin = make_twin(kind, path, folder, [sample])
                    found = (
                        blamed_by_diagnosis(path, twin, folder)
                        if asked.whole
                        else blamed_by_graphs(path, twin, [sample])
                    )
                except Exception as error:  # noqa: BLE001 - whatever another tool raises: it made no twin
                    print(f"{name} {kind}: no pair: {type(error).__name__}: {str(error)[:120]}", flush=True)
                    continue
                word, blamed = found
                pairs, wrong = pairs + 1, wrong + bool(blamed)
                models.add(name)
                print(
                    f"{name} {kind}: {word}, {time.monotonic() - begun:.1f} s", *blamed, sep="\n  BLAMED ", flush=True
                )
    print(f"{pairs} right pairs of {len(models)} models, {wrong} blamed")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
