"""What a side gives for a sample; of a candidate that fails on some, what it gives for the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, field
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from parityscope.backends import Session
    from parityscope.case import Sample

IN_A_ROW = 3  # chosen: whoever fails so often fails on all


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A sample that a candidate gave nothing for, and why; with `over` nothing further can be asked."""

    sample: str
    index: int
    problem: str
    where: str
    fix: str
    over: bool

    def as_error(self) -> ParityError:
        """The error that it was."""
        return ParityError(self.problem, where=self.where, fix=self.fix, failing=True, over=self.over)


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

    `over` says that nothing further can be asked: its process ended, or it failed three times in a row. `in_a_row` counts those
    that it failed on last, of which the first may have been asked elsewhere.
    """

    session: Session
    partly: bool
    over: bool = False
    failed: list[Failure] = field(default_factory=list)
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
            self.failed.append(
                Failure(
                    sample=sample.name,
                    index=sample.index,
                    problem=error.problem,
                    where=error.where,
                    fix=error.fix,
                    over=error.over,
                )
            )
            self.in_a_row += 1
            self.over = error.over or self.in_a_row == IN_A_ROW
            return None
        self.in_a_row = 0
        return found


def skips_of_failures(failed: Sequence[Failure], not_asked: int) -> list[Skip]:
    """The samples that a candidate failed on, and how many it was not asked for any more."""
    told = [Skip(what=f"sample {one.sample}", reason=one.problem, fix=one.fix, asked=True) for one in failed]
    if not_asked:
        last = failed[-1]
        what = f"{not_asked} samples after {last.sample}" if not_asked > 1 else f"one sample after {last.sample}"
        why = "the candidate's process ended" if last.over else "the candidate failed three times in a row"
        told.append(Skip(what=what, reason=why, fix=last.fix, asked=True))
    return told
