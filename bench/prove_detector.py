"""Proves the repair of the PP-OCRv4 text detector: one BatchNormalization folded in FP32, on 64 page images.

    python bench/prove_detector.py [--pages N] [--before TARGET] [--budget rel_l2=0.01] [-o FOLDER]

The pages are `proving.models.pages` (scans and pages rendered on photographs; their origins are printed with -o).
The task metric is the agreement of text boxes with the FP32 reference's.

Where the CPU has AVX512-FP16, `openvino:f16` executes FP16 and is what is verified. Elsewhere OpenVINO executes BF16 (or
FP32) for that request, whose range hides the fault; then FP16 is simulated, weights saturating as OpenVINO's do
(`sim:f16?overflow=saturate`), and the script says so. `--before` chooses a target whatever the machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from parityscope.backends import Capture
from parityscope.backends.opening import open_target
from parityscope.backends.targets import format_target, parse_target
from parityscope.case import Case, load_inputs, load_model
from parityscope.case.formats.npz import write_npz
from parityscope.case.graph import constant_value, node_name
from parityscope.records import Budget, Finding, Policy, Target
from parityscope.repairs import known_repairs
from parityscope.report.verification import FORMS, verification_document
from parityscope.verification import Targets, VerificationSettings, chosen_metric, verify
from proving.models.fetching import model_path
from proving.models.pages import COUNT, page_samples

if TYPE_CHECKING:
    from parityscope.case import Model

_SIMULATED = "sim:f16?overflow=saturate"
_HALF_LARGEST = 65504.0  # the largest finite float16, IEEE 754-2019


def main() -> int:
    """Folds, runs, verifies, prints; exit code 0 if the repair holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=COUNT)
    parser.add_argument("--before", default="")
    parser.add_argument("--budget", default="rel_l2=0.01")
    parser.add_argument("-o", "--output", type=Path, help="a new folder for report.html, fixed.onnx and origins.txt")
    arguments = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.output or Path(scratch) / "proof"
        folder.mkdir(parents=True)
        held = prove(arguments, folder)
    print(FORMS.as_text(held, width=120), end="")
    print(f"{time.perf_counter() - began:.0f} s in all")
    return 0 if held["verdict"] in {"improved", "within"} else 1


def prove(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The verification's document."""
    model = load_model(model_path("ocr-det"))
    fixed = folder / "fixed.onnx"
    print(f"folded: {fold(model, fixed)}")
    origins = []
    for page, arrays in page_samples(arguments.pages):
        write_npz(folder / "inputs" / f"{page.name}.npz", arrays)
        origins.append(f"{page.name}: {page.origin}")
    (folder / "origins.txt").write_text("\n".join(origins) + "\n", encoding="utf-8")
    inputs = load_inputs(model, folder / "inputs", spool=folder / "spool")
    before = parse_target(arguments.before) if arguments.before else deployed(model)
    after = Target(backend=before.backend, precision=before.precision, options=(*before.options, ("model", str(fixed))))
    metric, _, limit = arguments.budget.partition("=")
    budget = Budget(output="", metric=metric, limit=float(limit), reason="given with --budget")
    case = Case(name="ocr-det", model=model, inputs=inputs, policy=Policy(budgets=(budget,)))
    found = verify(
        case,
        Targets(reference=parse_target("ort"), before=before, after=after),
        VerificationSettings(metrics=(chosen_metric("text_boxes"),)),
        folder=folder / "tensors",
        progress=progress,
    )
    held = verification_document(found, case, command=" ".join(sys.argv))
    (folder / "report.html").write_text(FORMS.as_html(held), encoding="utf-8")
    return held


def fold(model: Model, path: Path) -> str:
    """Folds every BatchNormalization with a parameter beyond float16 and writes the copy; gives what was done."""
    graph = model.graph()
    done = []
    for name in _beyond(graph):
        finding = Finding(
            code="RNG001", title="", role="cause", claim="", confidence=1.0, confidence_from="", details={"node": name}
        )
        done.append(str(known_repairs()["fold_batch_normalization"].apply(graph, finding)))
    ir.save(graph, path)
    return "; ".join(done) or "nothing is beyond float16"


def _beyond(graph: ir.Model) -> list[str]:
    """The names of BatchNormalizations with a parameter beyond float16."""
    computing = [node for node in graph.graph if node.op_type != "Constant"]
    found = []
    for index, node in enumerate(computing):
        tensors = [constant_value(value) for value in node.inputs[1:]]
        if node.op_type == "BatchNormalization" and any(
            np.abs(tensor.numpy()).max() > _HALF_LARGEST for tensor in tensors if tensor is not None
        ):
            found.append(node_name(node, index))
    return found


def deployed(model: Model) -> Target:
    """`openvino:f16` where this CPU executes FP16, else its simulation."""
    target = parse_target("openvino:f16")
    with open_target(model, target, Capture()) as session:
        executed = session.executed.executed if session.executed is not None else "something unknown"
    if executed == "f16":
        return target
    print(f"{format_target(target)} executes {executed} on this CPU; FP16 is simulated instead: {_SIMULATED}")
    return parse_target(_SIMULATED)


def progress(what: str, step: int, steps: int) -> None:
    """Progress on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{what} {step}/{steps}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
