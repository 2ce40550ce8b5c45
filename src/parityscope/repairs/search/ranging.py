"""Range repairs first: each is tried on a copy, and stays if fewer nodes are out of range and the function is the same.

Repairs are the plug-ins of `parityscope.repairs`; each is asked about the flagged nodes and says itself where it
applies. What is blamed on a parameter is repaired at all such nodes at once; a tensor at a time, the largest first,
because one change of scale moves all of its neighbours.

A Clip at the format's bound is tried last, where everything low gives NaN or infinities and the search samples prove that
saturation does no harm; the tensor before it is not flagged any more. Scales are folded twice where it makes a difference
(`folding`).

Scales that were folded both ways: by the balanced exponents, and by the least that bring the tensors into range.

`scale_into_range` goes beyond the least exponent where a weight behind is still subnormal with it, by the ranges alone.
Whether that is better for the outputs is measured: both copies are run with everything low on the search samples, and
the one whose worst error is smaller is searched. It takes two evaluations, where the two copies differ.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from parityscope.arithmetic import format_named
from parityscope.arithmetic.simulation import arrange_precision
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.errors import ParityError
from parityscope.evaluation.simulating import open_simulation
from parityscope.light_dataclasses import dataclass, replace
from parityscope.records import Skip
from parityscope.repairs import Repair, known_repairs
from parityscope.repairs.saturate_activation import CLIPPED, saturation_proof
from parityscope.repairs.search.judging import relative_error, worst_excess
from parityscope.repairs.search.records import Flag, RangeEdit
from parityscope.repairs.search.screen import flag_nodes, ranges_of
from parityscope.repairs.search.splitting import reduced_value
from parityscope.repairs.search.staging import apply_edits, finding_of, stage_model
from parityscope.repairs.search.within import flagged_within
from parityscope.repairs.search.writing import unwritable_nodes

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    import onnx_ir as ir

    from parityscope.backends.recording import Progress
    from parityscope.case import Inputs, Model
    from parityscope.repairs.search.judging import Yardstick
    from parityscope.repairs.search.records import RepairTask

_SCALE = "scale_into_range"
_TRIALS = 16  # chosen: each costs one FP32 run over all tensors of the search samples
# How far an equivalent FP32 graph may be away: some hundred roundings to FP32 in a row. Chosen, as in the contract of
# repairs; the budget itself is measured from the original's outputs all the same.
_SAME_FUNCTION = 1e-4
_SATURATE = "saturate_activation"
_CODES = {"parameter": "RNG001", "activation": "RNG002", "operator": "CST001"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _FoldedCopy:
    """The copy with the better exponents, and the evaluations that it took to tell."""

    model: Model
    edits: tuple[RangeEdit, ...]
    evaluations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """The copy that is searched, what was changed in it, and what is still flagged.

    `screens` counts FP32 runs over all search samples, `evaluations` simulated ones.
    """

    model: Model
    edits: tuple[RangeEdit, ...]
    flags: tuple[Flag, ...]
    first: tuple[Flag, ...]
    skipped: tuple[Skip, ...]
    screens: int
    evaluations: int


def apply_range_repairs(
    task: RepairTask,
    search: Inputs,
    references: Sequence[Mapping[str, np.ndarray]],
    margin: float,
    held: Yardstick,
    folder: Path,
    progress: Progress,
) -> Screened:
    """Screens the model on the search samples and applies the range repairs that help."""
    work = _RangeWork(task=task, search=search, references=references, margin=margin, folder=folder, progress=progress)
    model = stage_model(task.model, (), folder, "named")
    first = flags = work.screen(model)
    edits: tuple[RangeEdit, ...] = ()
    skipped: list[Skip] = []
    trials, screens = 0, 1
    known = sorted(known_repairs().values(), key=_repair_order)
    runs = 0
    for repair in known if task.range_repairs else []:
        refused: set[str] = set()
        if repair.name == _SATURATE:
            if not any(work.saturates(flag) for flag in flags):
                continue
            runs += 1
            if math.isfinite(worst_all_low(model, task, search, references, held)):
                continue
        while trials < _TRIALS and (more := _edits_of_repair(work, repair, model, flags, refused)):
            trials += 1
            tried = work.trial(edits + more, trials)
            screens += not isinstance(tried, Skip)
            if isinstance(tried, Skip):
                skipped.append(tried)
            if isinstance(tried, Skip) or len(tried[1]) >= len(flags):
                refused.update(edit.node for edit in more)
                continue
            model, flags = tried
            edits += more
    both = _choose_folding(task, search, references, held, (model, edits), folder)
    if both.edits != edits:
        flags = work.screen(both.model, both.edits)
    return Screened(
        model=both.model,
        edits=both.edits,
        flags=flags,
        first=first,
        skipped=tuple(skipped),
        screens=screens + (both.edits != edits),
        evaluations=runs + both.evaluations,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _RangeWork:
    task: RepairTask
    search: Inputs
    references: Sequence[Mapping[str, np.ndarray]]
    margin: float
    folder: Path
    progress: Progress

    def screen(self, model: Model, edits: tuple[RangeEdit, ...] = ()) -> tuple[Flag, ...]:
        """What is flagged in the copy with these edits, but for tensors that were proved to saturate without harm."""
        ranges = ranges_of(model, self.search, max(1, self.task.threads or 2), self.progress)
        graph = model.graph()
        unwritable = self._unwritable_names(graph)
        clipped = [str(edit.details.get("tensor")) for edit in edits if edit.repair == _SATURATE]
        harmless = {*clipped, *(f"{tensor}{CLIPPED}" for tensor in clipped)}
        low, threads = self.task.labels.storage, max(1, self.task.threads or 2)
        within = flagged_within(model, self.search, ranges, low, self.margin, threads, apart=self.task.typed)
        found = flag_nodes(graph, ranges, low, self.margin, unwritable, within)
        return tuple(flag for flag in found if not (self.saturates(flag, self.margin) and flag.tensor in harmless))

    def saturates(self, flag: Flag, margin: float = 1.0) -> bool:
        """Whether a node is flagged for an activation that is beyond the format's largest number, or nearly."""
        return flag.blame == "activation" and flag.value * margin > format_named(self.task.labels.storage).largest

    def _unwritable_names(self, graph: ir.Model) -> Collection[str]:
        """The nodes without a low format; a search for products alone writes none."""
        low = self.task.labels.storage
        return unwritable_nodes(graph, low) if self.task.typed and low != "f32" else ()

    def proof(self, model: Model, tensor: str) -> dict[str, Any]:
        """What a Clip of a tensor at the format's bounds does to the FP32 outputs on the search samples."""
        arrays = (sample.arrays for sample in self.search)
        return saturation_proof(
            model.graph(),
            tensor,
            arrays,
            limit=_SAME_FUNCTION,
            number_format=self.task.labels.storage,
            folder=model.path.parent,
        )

    def trial(self, edits: tuple[RangeEdit, ...], number: int) -> tuple[Model, tuple[Flag, ...]] | Skip:
        """The copy with these edits and what is flagged in it, or why it is no repair."""
        what = f"range repair {edits[-1].repair} at {edits[-1].node}"
        try:
            model = stage_model(self.task.model, edits, self.folder, f"trial{number}")
            reduced = reduced_value(model.graph())
            if reduced:
                return Skip(what=what, reason=f"it types the model itself, which the search does: {reduced}")
            run = open_session(model.graph(), threads=self.task.threads, folder=model.path.parent)
            outputs = run(next(iter(self.search)).arrays)
        except ParityError as error:
            return Skip(what=what, reason=error.problem, fix=error.fix)
        for name, reference in self.references[0].items():
            same = outputs[name].shape == reference.shape
            if reference.dtype.kind == "f" and same:
                same = relative_error(reference, outputs[name], 0.0) <= _SAME_FUNCTION
            if not same and not self.task.consents:
                return Skip(what=what, reason=f"it changed {name} in FP32 by more than {_SAME_FUNCTION:g}")
        return model, self.screen(model, edits)


def _edits_of_repair(
    work: _RangeWork, repair: Repair, model: Model, flags: tuple[Flag, ...], refused: set[str]
) -> tuple[RangeEdit, ...]:
    """The edits that a repair makes of a copy: all parameters', or one tensor's."""
    task = work.task
    graph = apply_edits(model.graph(), ())
    found: list[RangeEdit] = []
    for flag in sorted(flags, key=lambda one: (one.blame != "parameter", -one.value, one.node)):
        if flag.blame == "operator" or flag.node in refused or (found and flag.blame != "parameter"):
            continue
        details: dict[str, Any] = {
            "node": flag.node,
            "value": flag.value,
            "reaches": flag.value,
            "format": task.labels.storage,
            "consents": list(task.consents),
            ("parameter" if flag.blame == "parameter" else "tensor"): flag.tensor,
        }
        if repair.name == _SATURATE:
            # The tensor overflows on its way to what reads it, not where it is read.
            if not work.saturates(flag) or not _makes_tensor(graph, flag):
                continue
            details["proof"] = work.proof(model, flag.tensor)
        code = _CODES[flag.blame]
        note = repair.apply(graph, finding_of(code, details, flag.text))
        if note is not None:
            found.append(RangeEdit(repair=repair.name, code=code, node=flag.node, note=note, details=details))
    return tuple(found)


def _repair_order(repair: Repair) -> tuple[bool, bool, bool, str]:
    """Exact repairs first, then those that cost nothing; the one that holds for the samples alone comes last."""
    return repair.name == _SATURATE, not repair.exact, not repair.cost.startswith("none"), repair.name


def _makes_tensor(graph: ir.Model, flag: Flag) -> bool:
    """Whether the flagged node makes the tensor."""
    return any(node.name == flag.node and any(one.name == flag.tensor for one in node.outputs) for node in graph.graph)


def _choose_folding(
    task: RepairTask,
    search: Inputs,
    references: Sequence[Mapping[str, np.ndarray]],
    held: Yardstick,
    found: tuple[Model, tuple[RangeEdit, ...]],
    folder: Path,
) -> _FoldedCopy:
    """The copy that was `found` with these edits, or the one with the least exponents, whichever is better low.

    Raises:
        ParityError: the runtime refuses the copy that was found.
    """
    model, edits = found
    least = tuple(
        replace(one, details={**one.details, "balance": False}) if one.repair == _SCALE else one for one in edits
    )
    if least == edits:
        return _FoldedCopy(model=model, edits=edits, evaluations=0)
    try:
        other = stage_model(task.model, least, folder, "least")
    except ParityError:  # a repair behind it does not apply any more
        return _FoldedCopy(model=model, edits=edits, evaluations=0)
    if other.sha256 == model.sha256:
        return _FoldedCopy(model=model, edits=edits, evaluations=0)
    balanced, bare = (worst_all_low(one, task, search, references, held) for one in (model, other))
    if balanced <= bare:
        return _FoldedCopy(model=model, edits=edits, evaluations=2)
    return _FoldedCopy(model=other, edits=least, evaluations=2)


def worst_all_low(
    model: Model, task: RepairTask, search: Inputs, references: Sequence[Mapping[str, np.ndarray]], held: Yardstick
) -> float:
    """The worst excess over the search samples with everything low; infinite where an output is not finite.

    Raises:
        ParityError: the runtime refuses the simulation.
    """
    run = open_simulation(arrange_precision(model.graph(), task.labels.storage), threads=task.threads)
    return max(
        worst_excess(held, reference, run(sample.arrays)) for sample, reference in zip(search, references, strict=True)
    )
