"""What a side gives for a sample; of a candidate that fails on some, what it gives for the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from parityscope.backends import Session
    from parityscope.case import Sample

__all__ = ["Answering", "answer_sample"]

_IN_A_ROW = 3  # chosen: whoever fails so often fails on all


def answer_sample(session: Session, sample: Sample) -> Mapping[str, np.ndarray]:
    """What a side gives for a sample.

    Raises:
        ParityError: it gives nothing, and the error says for which sample.
    """
    try:
        return session.run(sample)
    except ParityError as error:
        place = f"sample {sample.index} ({sample.name})"
        if sample.name in str(error):
            raise
        where = f"{place}, {error.where}" if error.where else place
        raise ParityError(error.problem, where=where, fix=error.fix, failing=error.failing, over=error.over) from error


@dataclass(slots=True, kw_only=True)
class Answering:
    """A candidate that is asked sample by sample; with `partly` it may fail on some while it runs.

    One that has no answer to a sample, such as a recording that lacks it, is bad input, and no failure.

    `over` says that nothing further can be asked: its process ended, or it failed three times in a row.
    """

    session: Session
    partly: bool
    over: bool = False
    failed: list[tuple[Sample, ParityError]] = field(default_factory=list)
    in_a_row: int = 0

    def of(self, sample: Sample) -> Mapping[str, np.ndarray] | None:
        """What it gives; None where it fails.

        Raises:
            ParityError: it fails, and may not, or has no answer.
        """
        try:
            found = answer_sample(self.session, sample)
        except ParityError as error:
            if not (self.partly and error.failing):
                raise
            self.failed.append((sample, error))
            self.in_a_row += 1
            self.over = error.over or self.in_a_row == _IN_A_ROW
            return None
        self.in_a_row = 0
        return found

    def raise_first(self) -> None:
        """Raises what it failed with first, if it failed."""
        if self.failed:
            raise self.failed[0][1]

    def skips(self, not_asked: Sequence[int]) -> list[Skip]:
        """The samples that it failed on, and those that it was not asked for any more."""
        told = [
            Skip(what=f"sample {sample.name}", reason=error.problem, fix=error.fix, asked=True)
            for sample, error in self.failed
        ]
        if not_asked:
            last = self.failed[-1][0].name
            what = f"{len(not_asked)} samples after {last}" if len(not_asked) > 1 else f"one sample after {last}"
            why = (
                "the candidate's process ended"
                if self.failed[-1][1].over
                else "the candidate failed three times in a row"
            )
            told.append(Skip(what=what, reason=why, fix=self.failed[-1][1].fix, asked=True))
        return told
