"""The contract of repairs, for those who write them.

`check_repair(REPAIR, model, finding, inputs, folder)` applies a repair to a copy of `model` for a finding that it is for
and raises AssertionError with a sentence for the first promise that is broken: it says what it did, the copy is a valid
model with the same inputs and outputs that computes the same function (bit for bit where the repair calls itself exact),
and where the finding names a node that is not there, or the reader has not consented to a change of the function that
the repair makes, it does nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends.contract import require_promise
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.case import load_model
from parityscope.comparison import measure_pair

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import onnx_ir as ir

    from parityscope.case import Model
    from parityscope.records import Finding
    from parityscope.repairs import Repair

# Relative L2: over a hundred roundings to FP32 (2^-24 = 6e-8) in a row. Chosen; larger models may need more.
_SAME_FUNCTION = 1e-5
_UNKNOWN = "no-such-node"


def check_repair(
    repair: Repair,
    model: Model,
    finding: Finding,
    inputs: Mapping[str, np.ndarray],
    folder: Path,
    *,
    relative: float = _SAME_FUNCTION,
) -> None:
    """Checks `repair` on a model, for a finding that it can be applied to; `relative` bounds the outputs' change.

    Raises:
        AssertionError: a sentence that says what the repair does not keep.
    """
    _check_no_change(repair, model, finding)
    graph = model.graph()
    note = repair.apply(graph, finding)
    require_promise(bool(note), f"{repair.name} cannot be applied to the finding, or does not say what it did")
    path = folder / f"{repair.name}.onnx"
    _save_checked(graph, path)
    changed = load_model(path)
    for side in ("inputs", "outputs"):
        before, after = getattr(model, side), getattr(changed, side)
        require_promise(before == after, f"{repair.name} changes the {side}: {before} became {after}")
    _check_function(repair, model, changed, inputs, relative)


def _check_no_change(repair: Repair, model: Model, finding: Finding) -> None:
    graph = model.graph()
    before = _serialize_graph(graph)
    elsewhere = replace(finding, site=None, details={**finding.details, "node": _UNKNOWN})
    require_promise(
        repair.apply(graph, elsewhere) is None, f"{repair.name} claims to have repaired a node that is not there"
    )
    if repair.consent:
        unasked = replace(finding, details={**finding.details, "consents": []})
        require_promise(
            repair.apply(graph, unasked) is None, f"{repair.name} changes the function without the reader's consent"
        )
    require_promise(_serialize_graph(graph) == before, f"{repair.name} changes the model where it cannot be applied")


def _check_function(
    repair: Repair, model: Model, changed: Model, inputs: Mapping[str, np.ndarray], relative: float
) -> None:
    # What is exact is so operator by operator: the runtime's own fusions may round otherwise in one of the two.
    level = "disabled" if repair.exact else "all"
    first, second = (
        open_session(one.graph(), folder=one.path.parent, optimization=level)(inputs) for one in (model, changed)
    )
    for name, reference in first.items():
        candidate = second[name]
        require_promise(candidate.shape == reference.shape, f"{repair.name} changes the shape of output {name!r}")
        require_promise(candidate.dtype == reference.dtype, f"{repair.name} changes the type of output {name!r}")
        if repair.exact:
            same = np.array_equal(reference, candidate, equal_nan=reference.dtype.kind == "f")
            require_promise(same, f"{repair.name} is called exact and changes output {name!r}")
        found = measure_pair(reference, candidate, channel_axis=None)
        error = found.rel_l2 if found.is_float else found.mismatch_share
        require_promise(
            error <= relative, f"{repair.name} changes output {name!r} by {error:.3g}, more than {relative:g}"
        )


def _save_checked(graph: ir.Model, path: Path) -> None:
    import onnx
    import onnx_ir as ir

    ir.save(graph, path)
    onnx.checker.check_model(path)


def _serialize_graph(graph: ir.Model) -> bytes:
    import onnx_ir as ir

    return bytes(ir.to_proto(graph).SerializeToString(deterministic=True))
