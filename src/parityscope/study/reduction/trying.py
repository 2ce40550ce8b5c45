"""Examines a smaller model as `diagnose` would, and says whether it shows the same finding."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any

from parityscope.backends.targets import RECORDED, format_target
from parityscope.case.formats.npz import write_npz
from parityscope.case.graph import constant_value, value_by_name
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, field, replace
from parityscope.records import Target
from parityscope.request import Request
from parityscope.study._examining import examine_request
from parityscope.study._opening import open_request
from parityscope.study.reduction.pattern import what_shows
from parityscope.study.reduction.records import Attempt

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from parityscope.backends.recording import Progress
    from parityscope.study.reduction.records import Arrays, FindingPattern, Piece, Shows


@dataclass(slots=True, kw_only=True)
class PieceTrials:
    """What was tried so far, and how: the finding that has to show, and the limits.

    `repeats` is how often a piece that does not show the finding is examined before that is believed: more than once where
    the candidate's answers vary. `documents` are the studies of the pieces that showed it, the last one last.
    """

    pattern: FindingPattern
    request: Request
    folder: Path
    progress: Progress
    limit: int
    repeats: int = 1
    attempts: list[Attempt] = field(default_factory=list)
    document: Mapping[str, Any] = field(default_factory=dict)

    @property
    def runs(self) -> int:
        """How often both sides were examined."""
        return sum(one.runs for one in self.attempts)

    def shows(self, piece: Piece, stage: str, what: str) -> bool:
        """Whether the piece shows the finding; the attempt is noted."""
        start = time.perf_counter()
        self.progress(f"{stage}: {what}", self.runs, 0)
        outcome: Shows = "not run"
        told, runs = "", 0
        for _ in range(self.repeats):
            runs += 1
            try:
                document = self._examine(piece)
            except ParityError as error:
                outcome, told = "not run", error.problem
                break
            outcome, told = what_shows(document, self.pattern)
            if outcome == "the same":
                self.document = document
                break
        self.attempts.append(
            Attempt(
                stage=stage,
                what=what,
                nodes=piece.nodes,
                elements=elements_of(piece),
                shows=outcome,
                told=told,
                runs=runs,
                seconds=round(time.perf_counter() - start, 3),
            )
        )
        return outcome == "the same"

    def note(self, stage: str, what: str, told: str) -> None:
        """A piece that could not even be made: nothing was run."""
        self.attempts.append(
            Attempt(stage=stage, what=what, nodes=0, elements=0, shows="not run", told=told, runs=0, seconds=0.0)
        )

    def may_go_on(self) -> bool:
        """Whether there are runs left for what only makes the proof smaller still."""
        return self.runs < self.limit

    def _examine(self, piece: Piece) -> Mapping[str, Any]:
        """The study of a piece, made as `diagnose` makes it."""
        home = self.folder / "trial"
        shutil.rmtree(home, ignore_errors=True)
        for number, arrays in enumerate(piece.samples):
            write_npz(home / "inputs" / f"{number:06d}.npz", arrays)
        candidate = piece.candidate
        if piece.answers is not None:
            candidate = recorded_target(piece, home / "recorded")
        request = Request(
            model=piece.model.path,
            candidate=format_target(candidate),
            reference=format_target(piece.reference),
            inputs=home / "inputs",
            policy=piece.policy,
            memory=self.request.memory,
            seconds=self.request.seconds,
        )
        (home / "study").mkdir()
        with open_request(request) as asked:
            return examine_request(replace(asked, folder=home / "study"))


def recorded_target(piece: Piece, folder: Path) -> Target:
    """The recorded candidate of a piece: what it gave, as files in `folder`."""
    for number, arrays in enumerate(piece.answers or ()):
        write_npz(folder / "outputs" / f"{number:06d}.npz", arrays)
    options = (("pair", "order"), ("path", str(folder)))
    return Target(backend=RECORDED, precision=piece.candidate.precision, options=options)


def elements_of(piece: Piece) -> int:
    """The numbers of one sample, and of all weights of the reference's file."""
    known = value_by_name(piece.model.graph()).values()
    weights = sum(held.size for value in known if (held := constant_value(value)) is not None)
    return weights + sum(_count_elements(arrays) for arrays in piece.samples[:1])


def _count_elements(arrays: Arrays) -> int:
    return sum(int(array.size) for array in arrays.values())
