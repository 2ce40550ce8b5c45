"""A guess of what the deployment changed: an edit, or a family of edits with its amounts, and what is expected of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, field, replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from parityscope.hypotheses.edits import StretchEdit
    from parityscope.hypotheses.from_outputs.families import EditFamily
    from parityscope.hypotheses.from_outputs.sites import EditSite

# Of an edit in few words; chosen: a node left out, another input read, one left out or zero, a default, an operator of its kind.
PLAIN_BITS = 6.5
RULE_BITS = 4.0  # which operator a rule is about: some sixteen kinds in a network
SIZE_COUNTS = 0.1  # of the score for each factor of ten that a response is larger or smaller than the residual


@dataclass(slots=True, kw_only=True, eq=False)
class Guess:
    """An edit, or a family with its amounts, and what is expected of it.

    `others` are edits of other sites that are made together with it, `rule` other sites where the very same edit is made: one
    rule, wherever it holds. `score` is the cosine between response and residual, less what its size is off; None where nothing
    can be said. `names` are other edits of the site that change it in the same way. `sketch` are the response's products with
    the signs.
    """

    site: EditSite
    kind: str
    edit: StretchEdit | None = None
    family: EditFamily | None = None
    amounts: tuple[float, ...] = (0.0,)
    others: tuple[tuple[EditSite, StretchEdit], ...] = ()
    rule: tuple[EditSite, ...] = ()
    score: float | None = None
    names: list[StretchEdit] = field(default_factory=list)
    sketch: np.ndarray | None = None

    def take_name(self, other: Guess, edit: StretchEdit) -> None:
        """Another guess's edit does the same: the shorter one is the guess's own from then on."""
        if self.edit is not None and edit.bits < self.edit.bits:
            self.kind, self.edit, edit = other.kind, edit, self.edit
        self.names.append(edit)

    def with_family(self, family: EditFamily, amounts: tuple[float, ...]) -> Guess:
        """The same guess with a family in the place of its edit, at these amounts."""
        return replace(self, edit=None, kind=family.kind, family=family, amounts=amounts)

    def made(self) -> StretchEdit:
        """The edit."""
        if self.edit is not None:
            return self.edit
        if self.family is None:
            raise ValueError("neither an edit nor a family")
        return self.of_family(self.family, self.amounts)

    def of_family(self, family: EditFamily, amounts: Sequence[float]) -> StretchEdit:
        """A family's edit as it is told here."""
        edit = family.make(*amounts)
        if not self.rule:
            return edit
        words = f"at each of {len(self.rule) + 1} {self.site.changed_step.op_type}: {edit.words}"
        return replace(edit, words=words, bits=edit.bits + RULE_BITS)

    def everything(self, edit: StretchEdit) -> tuple[tuple[EditSite, StretchEdit], ...]:
        """All that is changed where this guess's own edit is that."""
        return ((self.site, edit), *self.others, *((site, edit) for site in self.rule))


def guesses_unpredicted(sites: Sequence[EditSite], kinds: Sequence[str]) -> list[Guess]:
    """All edits of some kinds: they are tried whatever a derivative says, which is not made for a large change."""
    found = []
    for site in sites:
        try:
            found += [Guess(site=site, kind=kind, edit=edit) for kind, edit in site.edits(kinds)]
        except ParityError:  # a step that cannot be run alone has no edits
            continue
    return found
