"""What all tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """`main` works in the test's own process.

    The command line forks before it imports a runtime. A test process has runtimes loaded whose threads a fork would leave
    behind, with the locks that they hold: OpenVINO then waits for ever. What the fork is for is tested with real processes.
    """

    def unsupervised(work: Callable[[], int]) -> int:
        return work()

    monkeypatch.setattr("parityscope.cli._supervise.supervised", unsupervised)
