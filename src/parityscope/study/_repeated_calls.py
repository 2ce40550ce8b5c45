"""(Case, targets, what is fed back) -> Growth: both sides called again and again, each with its own state.

From the first judged sample on, call k takes the other inputs from sample k of the data, and from the last one where the
data end. What an honest deployment of the declared arithmetic would do is measured too: the simulation of a reduced
format, or for FP32 the reference with its optimizer off, on its own states.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

from parityscope.backends import Capture, is_recording
from parityscope.backends.opening import open_target
from parityscope.case import Sample
from parityscope.case.formats.loader import as_arrays, call_user_code, find_function
from parityscope.errors import ParityError
from parityscope.localization.calls import growth_of
from parityscope.localization.next_inputs import read_feed
from parityscope.records import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np

    from parityscope.backends import Session
    from parityscope.case import Case
    from parityscope.case.formats.loader import UserFunction
    from parityscope.examination import Examination
    from parityscope.localization.calls import Growth
    from parityscope.localization.next_inputs import Feed

    Arrays = Mapping[str, np.ndarray]

_STEPS = 20  # calls where none are asked for. Chosen: a gain of 1.2 is a factor of forty after them


def measure_growth(examination: Examination) -> Growth:
    """Calls both sides as often as was asked for (0: as often as there are samples, at least `_STEPS`).

    Raises:
        ParityError: a state names no input or output, a side is a recording, or a side cannot run.
    """
    case, reference, candidate = examination.case, examination.reference, examination.candidate
    names, states, progress = examination.names, examination.request.states, examination.progress
    feeds = _read_feeds(case, (reference, candidate), states)
    driven = examination.request.drive
    function = find_function(driven) if driven else None
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
            progress("calling again", min(done // 2, count), count)
            done += 1
            return _caller_of(theirs, case, names)(arrays)

        try:
            growth = growth_of(
                _caller_of(ours, case, {}),
                counted,
                sequence,
                states or dict.fromkeys((value.name for value in case.model.inputs), driven),
                honest=_caller_of(other, case, {}),
                feeds=feeds,
                drive=None if function is None else partial(_drive_on, function, case),
                forced=True,
            )
        except ValueError as error:
            raise ParityError(str(error), where=str(case.model.path), fix="see --state OUTPUT=INPUT") from error
    progress("calling again", count, count)
    return growth


def _read_feeds(case: Case, targets: tuple[Target, ...], states: Mapping[str, str]) -> dict[str, Feed]:
    inputs = [value.name for value in case.model.inputs]
    outputs = [value.name for value in case.model.outputs]
    feeds = {}
    for name, line in states.items():
        if name not in inputs:
            raise ParityError(
                f"--state {line}={name}: the model has no input {name!r}",
                where=str(case.model.path),
                fix=f"write --state OUTPUT=INPUT with one of: {', '.join(inputs)}",
            )
        try:
            feeds[name] = read_feed(name, line, inputs, outputs)
        except ValueError as error:
            raise ParityError(
                f"--state {line}={name}: {error}",
                where=str(case.model.path),
                fix=f"write --state OUTPUT=INPUT with one of: {', '.join(outputs)}",
            ) from error
    if any(map(is_recording, targets)):
        raise ParityError(
            "a recording cannot be called again with its own state",
            fix="give a target that runs (command?run=..., ort, openvino), or leave --state out",
        )
    return feeds


def _drive_on(function: UserFunction, case: Case, call: int, inputs: Arrays, outputs: Arrays) -> Arrays:
    """What the user's function gives for the next call: arrays by the names of inputs."""
    made = call_user_code(
        function, function.function, call, dict(inputs), dict(outputs), doing=f"making the inputs of call {call + 1}"
    )
    found = as_arrays(made, function, f"call {call + 1}")
    known = {value.name for value in case.model.inputs}
    if not found or set(found) - known:
        raise ParityError(
            f"the inputs are {', '.join(sorted(known))}, and call {call + 1} was given {', '.join(found) or 'none'}",
            where=function.text,
            fix="let it give arrays by the names of the inputs that are fed",
        )
    return found


def _caller_of(session: Session, case: Case, names: Mapping[str, str]) -> Callable[[Arrays], Arrays]:
    place = case.inputs.indices[0]

    def call(arrays: Arrays) -> Arrays:
        found = session.run(Sample(index=place, name="a repeated call", arrays=arrays))
        pairs = [(value.name, names.get(value.name, value.name)) for value in case.model.outputs]
        # A copy: a session may use its memory again for the next call, and these become its inputs.
        return {name: found[other].copy() for name, other in pairs if other in found}

    return call
