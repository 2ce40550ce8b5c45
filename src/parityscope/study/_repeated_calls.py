"""(Case, targets, what is fed back) -> Growth: both sides called again and again, each with its own state.

From the first judged sample on, call k takes the other inputs from sample k of the data, and from the last one where the
data end. What an honest deployment of the declared arithmetic would do is measured too: the simulation of a reduced
format, or for FP32 the reference with its optimizer off, on its own states.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from parityscope.backends import Capture, is_recording
from parityscope.backends.opening import open_target
from parityscope.case import Sample
from parityscope.errors import ParityError
from parityscope.localization.calls import growth_of
from parityscope.records import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np

    from parityscope.backends import Session
    from parityscope.case import Case
    from parityscope.examination import Examination
    from parityscope.localization.calls import Growth

    Arrays = Mapping[str, np.ndarray]

__all__ = ["measure_growth"]

_STEPS = 20  # calls where none are asked for. Chosen: a gain of 1.2 is a factor of forty after them


def measure_growth(examination: Examination) -> Growth:
    """Calls both sides as often as was asked for (0: as often as there are samples, at least `_STEPS`).

    Raises:
        ParityError: a state names no input or output, a side is a recording, or a side cannot run.
    """
    case, reference, candidate = examination.case, examination.reference, examination.candidate
    names, states, progress = examination.names, examination.request.states, examination.progress
    _check_states(case, (reference, candidate), states)
    indices = case.inputs.indices
    count = examination.request.steps or max(_STEPS, len(indices))
    sequence = [case.inputs.sample(indices[min(call, len(indices) - 1)]).arrays for call in range(count)]
    declared = case.policy.declared
    honest = (
        Target(backend="ort", options=(("optimization", "disabled"),))
        if declared == "f32"
        else Target(backend="sim", precision=declared)
    )
    with contextlib.ExitStack() as held:
        ours, theirs, other = (
            held.enter_context(open_target(case.model, target, Capture())) for target in (reference, candidate, honest)
        )
        done = 0

        def counted(arrays: Arrays) -> Arrays:
            nonlocal done
            progress("calling again", done, count)
            done += 1
            return _caller_of(theirs, case, names)(arrays)

        try:
            return growth_of(_caller_of(ours, case, {}), counted, sequence, states, honest=_caller_of(other, case, {}))
        except ValueError as error:
            raise ParityError(str(error), where=str(case.model.path), fix="see --state OUTPUT=INPUT") from error


def _check_states(case: Case, targets: tuple[Target, ...], states: Mapping[str, str]) -> None:
    inputs = {value.name: value for value in case.model.inputs}
    outputs = {value.name: value for value in case.model.outputs}
    for name, output in states.items():
        if name not in inputs or output not in outputs:
            wrong, known, kind = (name, inputs, "input") if name not in inputs else (output, outputs, "output")
            raise ParityError(
                f"--state {output}={name}: the model has no {kind} {wrong!r}",
                where=str(case.model.path),
                fix=f"write --state OUTPUT=INPUT with one of: {', '.join(known)}",
            )
    if any(map(is_recording, targets)):
        raise ParityError(
            "a recording cannot be called again with its own state",
            fix="give a target that runs (command?run=..., ort, openvino), or leave --state out",
        )


def _caller_of(session: Session, case: Case, names: Mapping[str, str]) -> Callable[[Arrays], Arrays]:
    place = case.inputs.indices[0]

    def call(arrays: Arrays) -> Arrays:
        found = session.run(Sample(index=place, name="a repeated call", arrays=arrays))
        pairs = [(value.name, names.get(value.name, value.name)) for value in case.model.outputs]
        # A copy: a session may use its memory again for the next call, and these become its inputs.
        return {name: found[other].copy() for name, other in pairs if other in found}

    return call
