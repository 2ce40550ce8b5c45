"""What all tests share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

import parityscope.compiling  # noqa: F401 - loops are taken compiled: what numpy does before that is tested by name

if TYPE_CHECKING:
    from collections.abc import Callable

    from parityscope.backends.tensorrt_views import Package

# A law that hypothesis breaks with a new example is found where somebody can mend it: a change is judged by the examples of
# the change before it.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

# Of these files each takes half a minute or more, the slowest first: whoever begins with them does not end with them, while
# the other processes wait. `make test` shows the slowest tests.
SLOWEST = (
    "test_docs",
    "test_several_causes",
    "test_checks",
    "test_bindings",
    "test_founding_preprocessing",
    "test_isolation",
    "test_main_job",
    "test_hostile",
    "test_faults",
    "test_shapes",
    "test_outputs_alone",
    "test_named_arithmetic",
    "test_kills",
    "test_bad_candidates",
    "test_resume",
    "test_fairness",
    "test_quantizing",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slowest files first; the tests of a file stay in their order."""
    ranks = {name: rank for rank, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: ranks.get(item.path.stem, len(ranks)))


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """`main` works in the test's own process.

    The command line forks before it imports a runtime. A test process has runtimes loaded whose threads a fork would leave
    behind, with the locks that they hold: OpenVINO then waits for ever. What the fork is for is tested with real processes.
    """

    def unsupervised(work: Callable[[], int]) -> int:
        return work()

    monkeypatch.setattr("parityscope.cli._supervise.supervise_work", unsupervised)


@pytest.fixture(scope="session")
def package() -> Package:
    """TensorRT-RTX, whose parser and builder need no GPU."""
    from parityscope.backends.tensorrt_views import find_package

    return find_package("rtx")
