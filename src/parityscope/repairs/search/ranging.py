"""Range repairs first: each is tried on a copy, and stays if fewer nodes are out of range and the function is the same.

Repairs are the plug-ins of `parityscope.repairs`; each is asked about the flagged nodes and says itself where it
applies. What is blamed on a parameter is repaired at all such nodes at once; a tensor at a time, the largest first,
because one change of scale moves all of its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from parityscope.backends._onnxruntime import open_session
from parityscope.errors import ParityError
from parityscope.records import Skip
from parityscope.repairs import Repair, repairs
from parityscope.repairs.search.judging import relative_error
from parityscope.repairs.search.records import Edit, Flag
from parityscope.repairs.search.screen import flagged, ranges_of
from parityscope.repairs.search.splitting import reduced_value
from parityscope.repairs.search.staging import applied, finding_of, staged
from parityscope.repairs.search.writing import unwritable_nodes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from parityscope.backends.recording import Progress
    from parityscope.case import Inputs, Model
    from parityscope.repairs.search.records import Task

__all__ = ["Screened", "repaired"]

_TRIALS = 16  # chosen: each costs one FP32 run over all tensors of the search samples
# How far an equivalent FP32 graph may be away: some hundred roundings to FP32 in a row. Chosen, as in the contract of
# repairs; the budget itself is measured from the original's outputs all the same.
_SAME_FUNCTION = 1e-4
_CODES = {"parameter": "RNG001", "activation": "RNG002", "operator": "CST001"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """The copy that is searched, what was changed in it, and what is still flagged."""

    model: Model
    edits: tuple[Edit, ...]
    flags: tuple[Flag, ...]
    first: tuple[Flag, ...]
    skipped: tuple[Skip, ...]


def repaired(
    task: Task,
    search: Inputs,
    references: Sequence[Mapping[str, np.ndarray]],
    margin: float,
    folder: Path,
    progress: Progress,
) -> Screened:
    """Screens the model on the search samples and applies the range repairs that help."""
    work = _Work(task=task, search=search, references=references, margin=margin, folder=folder, progress=progress)
    model = staged(task.model, (), folder, "named")
    first = flags = work.screen(model)
    edits: tuple[Edit, ...] = ()
    skipped: list[Skip] = []
    trials = 0
    known = sorted(repairs().values(), key=lambda one: (not one.exact, not one.cost.startswith("none"), one.name))
    for repair in known if task.range_repairs else []:
        refused: set[str] = set()
        while trials < _TRIALS and (more := _edits(task, repair, model, flags, refused)):
            trials += 1
            tried = work.trial(edits + more, trials)
            if isinstance(tried, Skip):
                skipped.append(tried)
            if isinstance(tried, Skip) or len(tried[1]) >= len(flags):
                refused.update(edit.node for edit in more)
                continue
            model, flags = tried
            edits += more
    return Screened(model=model, edits=edits, flags=flags, first=first, skipped=tuple(skipped))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    task: Task
    search: Inputs
    references: Sequence[Mapping[str, np.ndarray]]
    margin: float
    folder: Path
    progress: Progress

    def screen(self, model: Model) -> tuple[Flag, ...]:
        ranges = ranges_of(model, self.search, self.task.memory, max(1, self.task.threads or 2), self.progress)
        graph = model.graph()
        unwritable = unwritable_nodes(graph, self.task.low) if self.task.typed else ()
        return flagged(graph, ranges, self.task.low, self.margin, unwritable)

    def trial(self, edits: tuple[Edit, ...], number: int) -> tuple[Model, tuple[Flag, ...]] | Skip:
        """The copy with these edits and what is flagged in it, or why it is no repair."""
        what = f"range repair {edits[-1].repair} at {edits[-1].node}"
        try:
            model = staged(self.task.model, edits, self.folder, f"trial{number}")
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
        return model, self.screen(model)


def _edits(task: Task, repair: Repair, model: Model, flags: tuple[Flag, ...], refused: set[str]) -> tuple[Edit, ...]:
    """The edits that a repair makes of a copy: all parameters', or one tensor's."""
    graph = applied(model.graph(), ())
    found: list[Edit] = []
    for flag in sorted(flags, key=lambda one: (one.blame != "parameter", -one.value, one.node)):
        if flag.blame == "operator" or flag.node in refused or (found and flag.blame != "parameter"):
            continue
        details: dict[str, Any] = {
            "node": flag.node,
            "value": flag.value,
            "reaches": flag.value,
            "format": task.low,
            "consents": list(task.consents),
            ("parameter" if flag.blame == "parameter" else "tensor"): flag.tensor,
        }
        code = _CODES[flag.blame]
        note = repair.apply(graph, finding_of(code, details, flag.text))
        if note is not None:
            found.append(Edit(repair=repair.name, code=code, node=flag.node, note=note, details=details))
    return tuple(found)
