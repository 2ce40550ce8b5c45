"""The whole chain with ONNX Runtime CUDA as the deployment, in FP32, TF32 and FP16: diagnose, repair, verify.

    python bench/cuda_chain.py [--models ID,...] [--samples N] [-o FOLDER]

For each model of the catalogue: the file itself on the GPU with TF32 off and on, and its strongly typed FP16 copy, each
diagnosed against ONNX Runtime's CPU. Where FP16 is beyond, the repair is searched, and verified on the GPU against the
FP16 copy and against FP32, with latency. Prints Markdown; the studies stay in FOLDER.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

import parityscope
from parityscope.arithmetic.typed import typed_model
from parityscope.case.formats.npz import write_npz
from parityscope.cli import run_command as command
from parityscope.errors import ParityError
from proving.models import samples as drawn
from proving.models.fetching import model_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

with contextlib.suppress(ImportError):
    import torch  # noqa: F401 - brings the CUDA libraries that ONNX Runtime loads

MODELS = "ocr-det,ocr-rec,ocr-cls,layout,dnsmos,magika,pitch,vad-18,vad-seq"
SERIES = {"ocr-det": drawn.page_crops, "ocr-rec": drawn.text_lines, "magika": drawn.library_files}
SEED = 11
MEMORY = 4 << 30
PRODUCTS = {"Conv", "ConvTranspose", "MatMul", "Gemm"}
NAMED = 0.99  # the explained share above which a product is called TF32


def main() -> int:
    """Runs every model and prints the tables; 0 if nothing failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.output or Path(scratch)
        rows, proofs = [], []
        for name in arguments.models.split(","):
            try:
                rows += examined(name, folder / name, arguments.samples)
                proofs += proved(name, folder / name)
            except ParityError as error:
                print(f"{name}: {error}", file=sys.stderr)
                rows.append([name, "", "failed", *[""] * 6])
    print_table("model arithmetic verdict output grade causes products named left s".split(), rows)
    print_table("model before after verdict rel_l2 latency".split(), proofs)
    return int(any(row[2] == "failed" for row in rows))


def examined(name: str, folder: Path, count: int) -> list[list[str]]:
    """One row for each arithmetic of the deployment."""
    folder.mkdir(parents=True, exist_ok=True)
    model = model_path(name)
    write_samples(name, folder / "inputs", count)
    half = folder / "f16.onnx"
    ir.save(typed_model(ir.load(model), "f16", {}).model, half)
    rows = []
    for label, target in (
        ("FP32", "ort?device=cuda&tf32=off"),
        ("TF32", "ort:tf32?device=cuda&tf32=on"),
        ("FP16", f"ort:f16?device=cuda&model={half}"),
    ):
        began = time.perf_counter()
        first = min((folder / "inputs").iterdir())
        found = parityscope.diagnose(model, candidate=target, inputs=first, memory=MEMORY).document
        (folder / f"{label}.json").write_text(json.dumps(found), encoding="utf-8")
        rows.append([name, label, *told(found), f"{time.perf_counter() - began:.0f}"])
    return rows


def told(found: Mapping[str, Any]) -> list[str]:
    """Verdict, worst output error, its grade, causes, and what the leading products' errors are."""
    worst = max(found["outputs"], key=lambda output: _size(output["rel_l2"]))
    causes = ", ".join(sorted({finding["code"] for finding in found["findings"] if finding["role"] == "cause"}))
    products = [suspect for suspect in found["suspects"] if suspect["site"]["op_type"] in PRODUCTS]
    shares = [max([0.0, *(_size(one["share"]) for one in suspect["explained_by"])]) for suspect in products]
    names: dict[str, int] = {}
    for suspect, share in zip(products, shares, strict=True):
        if share > NAMED:
            names[suspect["explained_by"][0]["hypothesis"]] = names.get(suspect["explained_by"][0]["hypothesis"], 0) + 1
    left = found["unexplained"]
    return [
        found["verdict"],
        f"{_size(worst['rel_l2']):.2e}",
        worst["grade"],
        causes or "-",
        str(len(products)),
        "; ".join(f"{times} {hypothesis}" for hypothesis, times in names.items()) or "-",
        "-" if left is None else f"{_size(left if not isinstance(left, dict) else left.get('share', 'NaN')):.2g}",
    ]


def _size(value: float | str | None) -> float:
    return float("nan") if value is None else float(value)


def proved(name: str, folder: Path) -> list[list[str]]:
    """The repair, where FP16 is beyond, against the FP16 copy and against FP32."""
    found = json.loads((folder / "FP16.json").read_text(encoding="utf-8"))
    half = f"ort:f16?device=cuda&model={folder / 'f16.onnx'}"
    fixed = folder / "fixed.onnx"
    if found["verdict"] == "beyond":
        words = ["repair", str(model_path(name)), "--low", "f16", "--inputs", str(folder / "inputs"), "-o", str(fixed)]
        status = command([*words, "--budget", "rel_l2=1e-2", "--quiet"])
        print(f"{name}: repair ended with {status}", file=sys.stderr)
    after = f"ort:f16?device=cuda&model={fixed if fixed.exists() else folder / 'f16.onnx'}"
    rows = []
    for before in dict.fromkeys((half, "ort?device=cuda&tf32=off")):
        if before == after:
            continue
        study = folder / f"verify-{len(rows)}"
        words = [
            "verify",
            str(model_path(name)),
            "--before",
            before,
            "--after",
            after,
            "--inputs",
            str(folder / "inputs"),
        ]
        command([*words, "--budget", "rel_l2=1e-2", "--study", str(study), "--quiet", "--time", "10s"])
        held = json.loads((study / "study.json").read_text(encoding="utf-8"))
        rows.append([name, short(before), short(after), held["verdict"], errors(held), latency(held)])
    return rows


def short(target: str) -> str:
    """The target without paths."""
    return target.split("&model=", maxsplit=1)[0] + (
        f" {Path(target.split('&model=')[1]).name}" if "&model=" in target else ""
    )


def errors(held: Mapping[str, Any]) -> str:
    """Worst relative L2 error of an output before and after."""
    return " -> ".join(
        f"{max((_size(one[side]['rel_l2']) for one in held['outputs']), default=float('nan')):.2e}"
        for side in ("before", "after")
    )


def latency(held: Mapping[str, Any]) -> str:
    """Median milliseconds of a run before and after, and their ratio with its interval."""
    timing = held["latency"]
    if not timing:
        return "-"
    before, after = (1000 * timing[side]["median"] for side in ("before", "after"))
    return f"{before:.2f} -> {after:.2f} ms"


def write_samples(name: str, folder: Path, count: int) -> None:
    """`count` samples where there is a series of them, else one."""
    series: Iterator[Mapping[str, np.ndarray]]
    series = SERIES[name](np.random.default_rng(SEED)) if name in SERIES else iter([drawn.sample_of(name)])
    for number, arrays in enumerate(itertools.islice(series, count)):
        write_npz(folder / f"{number:06d}.npz", dict(arrays))


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table in Markdown."""
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


if __name__ == "__main__":
    sys.exit(main())
