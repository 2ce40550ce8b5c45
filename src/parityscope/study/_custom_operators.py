"""When a side refuses the model for a custom operator: the same examination on what can be run in front of it.

A refusal is looked at only after it happened, so that models without custom operators pay nothing. The graph names the
operators that neither ONNX nor the model itself defines; ONNX Runtime is then asked for each of them, and other
runtimes are taken at their word. A side that lacks none of them keeps running the whole graph, with the
borders of the cut as further outputs: a recording may hold them, an engine can compute them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from parityscope.backends import backend_named, optimizes_as_onnxruntime
from parityscope.backends.opening import model_of
from parityscope.backends.ort import unregistered_operators
from parityscope.backends.targets import format_target
from parityscope.case.cutting import cut_model, foreign_operators, operator_name, with_borders
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, replace

if TYPE_CHECKING:
    from parityscope.case import Model
    from parityscope.case.cutting import CutModel, Operator
    from parityscope.examination import Examination
    from parityscope.records import Target

_NOTHING_COMPARED = "no output could be compared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The examination that is possible instead of the `given` one: `reached` ends at the borders of `cut`.

    `lacks` holds the operators that (reference, candidate) lack.
    """

    given: Examination
    reached: Examination
    cut: CutModel
    lacks: tuple[frozenset[Operator], frozenset[Operator]]

    def told(self, document: dict[str, Any]) -> dict[str, Any]:
        """The document of the bounded examination as one of the given model and candidate."""
        changed = dict(document)
        changed["model"] = {**document["model"], **_model_facts(self.given.case.model)}
        changed["candidate"] = {**document["candidate"], "target": format_target(self.given.candidate)}
        hidden = {f"{kind} {name}{tail}" for name in self.cut.behind for kind, tail in _WAYS}
        changed["skipped"] = [
            self._as_intermediate(skip)
            for skip in document["skipped"]
            if skip["what"] not in hidden or skip["reason"] in {own.reason for own in self.cut.skipped}
        ]
        return changed

    def explained(self, error: ParityError) -> ParityError:
        """`error`, with the cut as its reason where nothing in front of it was there to compare."""
        if not error.problem.startswith(_NOTHING_COMPARED) or not self.cut.skipped:
            return error
        behind = self.cut.skipped[0]
        return ParityError(
            f"nothing in front of the custom operator could be compared ({error.problem}); {behind.reason}",
            fix=behind.fix,
        )

    def _as_intermediate(self, skip: dict[str, Any]) -> dict[str, Any]:
        """A border that a side does not give back is an intermediate tensor: nobody asked for it."""
        name = skip["what"].removeprefix("output ").removeprefix("tensor ")
        return {**skip, "what": f"tensor {name}", "asked": False} if name in self.cut.borders else skip


# How Skips call a tensor: of a recording, of another graph, of an output.
_WAYS = (("tensor", ""), ("tensor", " of the candidate"), ("output", ""))


def bound_examination(refusal: ParityError, examination: Examination, before: Bounds | None) -> Bounds | None:
    """What can still be examined after `refusal`; None when it was not for a custom operator (or for no new one).

    Raises:
        ParityError: nothing remains in front of the operators, or a library of operators cannot be loaded.
    """
    given, reference, candidate = examination.case, examination.reference, examination.candidate
    folder = examination.folder
    its_model = model_of(given.model, candidate)
    known = before.lacks if before else (frozenset(), frozenset())
    lacks = (
        known[0] | _lacking_operators(reference, given.model, refusal),
        known[1] | _lacking_operators(candidate, its_model, refusal),
    )
    if lacks == known or not (lacks[0] or lacks[1]):
        return None
    cut = cut_model(given.model, lacks[0] | lacks[1], folder / "cut" / "reference.onnx", _fix_for(lacks, candidate))
    if not backend_named(candidate.backend).reads_model or not lacks[1]:
        own = with_borders(its_model, cut, folder / "cut" / "whole.onnx")
    elif its_model.sha256 == given.model.sha256:
        own = cut.model
    else:
        own = cut_model(its_model, lacks[1], folder / "cut" / "candidate.onnx", _fix_for(lacks, candidate)).model
    mapping = {old: new for old, new in examination.request.mapping.items() if old not in cut.behind}
    reached = replace(
        examination,
        request=replace(examination.request, mapping=mapping),
        case=replace(given, model=cut.model),
        candidate=_running_target(candidate, own, cut.model),
        unjudged=cut.skipped,
    )
    return Bounds(given=examination, reached=reached, cut=cut, lacks=lacks)


def _lacking_operators(target: Target, model: Model, refusal: ParityError) -> frozenset[Operator]:
    runtime = backend_named(target.backend)
    if not runtime.reads_model:
        return frozenset()
    foreign = foreign_operators(model.graph())
    if runtime.onnxruntime == "yes":  # which can be asked
        return frozenset(unregistered_operators(foreign, model.opsets, target.option("custom_ops")))
    # Its own words say what it lacks; ONNX Runtime's say nothing about it.
    words = "" if refusal.problem.startswith("ONNX Runtime") else f"{refusal.problem} {refusal.__cause__ or ''}"
    return frozenset(one for one in foreign if re.search(rf"(?<!\w){re.escape(one[1])}(?!\w)", words))


def _fix_for(lacks: tuple[frozenset[Operator], frozenset[Operator]], candidate: Target) -> str:
    if lacks[0]:
        return "give the library with ort?custom_ops=lib.so: --reference 'ort?custom_ops=lib.so'"
    if optimizes_as_onnxruntime(candidate):
        return "give the library with ort?custom_ops=lib.so: --candidate 'ort?custom_ops=lib.so'"
    lacking = ", ".join(operator_name(one) for one in sorted(lacks[1]))
    return f"{candidate.backend} cannot run {lacking}: record it elsewhere, and give that with saved?path=FOLDER"


def _running_target(candidate: Target, own: Model, reference: Model) -> Target:
    """The candidate with the model that it can run; none is named where it is the reference's."""
    options = {key: value for key, value in candidate.options if key != "model"}
    if own.path != reference.path:
        options["model"] = str(own.path)
    return replace(candidate, options=tuple(sorted(options.items())))


def _model_facts(model: Model) -> dict[str, Any]:
    return {"path": str(model.named), "sha256": model.sha256, "nbytes": model.nbytes, "nodes": model.nodes}
