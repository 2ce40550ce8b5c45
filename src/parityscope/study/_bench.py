"""(Case, targets) -> Bench: the reference on changed inputs and both sides' outputs on a few samples, run when asked for.

Nothing is opened before the first question: a diagnosis whose checks ask nothing pays nothing. The reference has one
session for all questions. The candidate's samples are run in one session in their order, as the deployment meets them, so
that what stays behind from one sample is seen in the next.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from parityscope.backends import Capture
from parityscope.backends.recording import open_target
from parityscope.case import Sample
from parityscope.checks import Bench
from parityscope.records import Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np

    from parityscope.backends import Session
    from parityscope.case import Case

__all__ = ["open_bench"]

_SAMPLES = 4  # chosen: a hypothesis found on the first must hold on others, and each more costs a run of both sides
_RECORDED = "saved"  # the backend that answers only for what it has


@contextlib.contextmanager
def open_bench(case: Case, reference: Target, candidate: Target, names: Mapping[str, str]) -> Iterator[Bench]:
    """The bench of a case while the block lasts; `names` maps the reference's outputs to the candidate's.

    A recorded reference cannot be asked anything new: ONNX Runtime runs its model instead.

    Raises:
        ParityError: (by its functions) a side cannot run.
    """
    with contextlib.ExitStack() as held:
        asked = _Asked(case, reference, candidate, names, held)
        yield Bench(
            samples=case.inputs.indices[:_SAMPLES],
            outputs=asked.outputs,
            inputs=lambda index: case.inputs.sample(index).arrays,
            reference=asked.reference,
            candidate=asked.candidate,
        )


class _Asked:
    """What was opened and answered so far."""

    def __init__(
        self, case: Case, reference: Target, candidate: Target, names: Mapping[str, str], held: contextlib.ExitStack
    ) -> None:
        options = tuple((key, value) for key, value in reference.options if key == "custom_ops")
        recorded = reference.backend == _RECORDED
        self._case = case
        self._runs_reference = Target(backend="ort", options=options) if recorded else reference
        self._runs_candidate = candidate
        self._names = names
        self._held = held
        self._session: Session | None = None
        self._of_reference: dict[int, Mapping[str, np.ndarray]] = {}
        self._of_candidate: dict[int, Mapping[str, np.ndarray]] = {}

    def outputs(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if self._session is None:
            self._session = self._held.enter_context(open_target(self._case.model, self._runs_reference, Capture()))
        # The place is a judged sample's, because a session may look for what belongs to it; only the arrays are changed.
        sample = Sample(index=self._case.inputs.indices[0], name="changed inputs", arrays=arrays)
        found = self._session.run(sample)
        return {value.name: found[value.name] for value in self._case.model.outputs if value.name in found}

    def reference(self, index: int) -> Mapping[str, np.ndarray]:
        if index not in self._of_reference:
            self._of_reference[index] = self.outputs(self._case.inputs.sample(index).arrays)
        return self._of_reference[index]

    def candidate(self, index: int) -> Mapping[str, np.ndarray]:
        if not self._of_candidate:
            with open_target(self._case.model, self._runs_candidate, Capture()) as session:
                for each in self._case.inputs.indices[:_SAMPLES]:
                    self._of_candidate[each] = self._named(session.run(self._case.inputs.sample(each)))
        return self._of_candidate[index]

    def _named(self, found: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        outputs = [value.name for value in self._case.model.outputs]
        pairs = [(name, self._names.get(name, name)) for name in outputs]
        return {name: found[other] for name, other in pairs if other in found}
