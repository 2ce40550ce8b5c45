"""The exception that carries the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parityscope.api.results import Result


class ParityFailure(AssertionError):  # noqa: N818 - a failed assertion, as test runners count them
    """Two deployments differ by more than they may; the message is the first screen, `result` the whole answer if it is known."""

    result: Result | None = None
