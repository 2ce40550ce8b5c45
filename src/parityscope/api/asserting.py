"""Parity as an assertion: for tests, and for the last line of a conversion script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.api.verbs import compare, diagnose
from parityscope.errors import Exit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from parityscope.api.given import Candidate, Data, Network
    from parityscope.api.results import Result
    from parityscope.records import Policy


def assert_parity(
    model: Network,
    *,
    candidate: Candidate,
    inputs: Data = None,
    reference: Candidate | None = None,
    declared: str = "",
    budgets: Mapping[str, float] | None = None,
    policy: str | Path | Policy | None = None,
    why: bool = True,
) -> Result:
    """Passes where every output is as close as its arithmetic, or the budgets, allow; arguments as of `diagnose`.

    Outputs are compared first, which takes little. Where they differ, the whole diagnosis is made (unless `why` is False), so
    that the failure says why, where, and what to do. Inputs that can be iterated over only once are kept in memory for that.

    Raises:
        ParityFailure: (an AssertionError) they differ, or something could not be judged; the message is the first screen.
        ParityError: bad input, a missing runtime, or a side that cannot run.
    """
    data = list(inputs) if hasattr(inputs, "__next__") else inputs
    held = {"candidate": candidate, "inputs": data, "reference": reference, "declared": declared}
    found = compare(model, **held, budgets=budgets, policy=policy)
    if why and found.exit != Exit.WITHIN:
        found = diagnose(model, **held, budgets=budgets, policy=policy)
    found.raise_if_beyond()
    return found
