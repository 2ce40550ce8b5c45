"""What all tests share."""

from __future__ import annotations

import gc
import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from parityscope.memory import with_room_for_calls
from parityscope.threads import use_one_thread

use_one_thread()  # as a command does, before numpy is there

import parityscope.compiling  # noqa: E402, F401 - loops are taken compiled: what numpy does before that is tested by name

if TYPE_CHECKING:
    from collections.abc import Callable

    from parityscope.backends.tensorrt.packages import Package

# A law that hypothesis breaks with a new example is found where somebody can mend it: a change is judged by the examples of
# the change before it.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

# Whole commands on real models, planted faults and every command of the documents: files of ten seconds and more, the slowest
# first. `make test-core` leaves them out, and the single tests of other files that are marked `story`. Whoever begins with
# them does not end with them while the other processes wait; `make test` shows the slowest tests.
STORIES = (
    "test_checks",
    "test_outputs_alone",
    "test_explanation",
    "test_isolation",
    "test_large_model",
    "test_docs",
    "test_hostile",
    "test_founding_clip",
    "test_kills",
    "test_several_causes",
    "test_founding_preprocessing",
    "test_fairness",
    "test_bindings",
    "test_resume",
    "test_main_job",
    "test_preprocessing",
    "test_first_screens_page",
    "test_bad_candidates",
    "test_founding_efficientnet",
    "test_declared_types",
    "test_arithmetic_operators",
    "test_shapes",
    "test_faults",
    "test_python_api",
    "test_experiment_alone",
    "test_parts",
    "test_images_option",
    "test_quantizing",
    "test_earned",
    "test_named_arithmetic",
    "test_against_itself",
    "test_failing_models",
    "test_nonfinite_first",
    "test_fuzzed",
    "test_tensorrt_faults",
    "test_models_helper",
    "test_new",
    "test_many_bindings",
    "test_old_runtimes",
    "test_page",
    "test_site",  # it shows what the examples of checks gave, which are whole by then
)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files of stories are not even imported where stories are left out: each process would read them for nothing."""
    return True if collection_path.stem in STORIES and "not story" in config.option.markexpr else None


def pytest_configure(config: pytest.Config) -> None:
    """Every second process reads the files from the last to the first: what one has rewritten the others need not."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    if number % 2 and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        paths = sorted(Path(__file__).parent.glob("test_*.py"), reverse=True)
        config.args = [str(path) for path in paths if not pytest_ignore_collect(path, config)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the stories and puts them first, the slowest file before all; the tests of a file stay in their order."""
    ranks = {name: rank for rank, name in enumerate(STORIES)}
    items.sort(key=lambda item: (ranks.get(item.path.stem, len(ranks)), item.path))
    for item in items:
        if item.path.stem in ranks:
            item.add_marker(pytest.mark.story)


def pytest_collection_finish() -> None:
    """What was read so far stays: `relieve_memory` and each fork would go through all of it again."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    """A test has the room for calls that a command has: pytest's own are fifty deep."""
    words = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    with_room_for_calls(pyfuncitem.obj)(**words)
    return True


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """`main` works in the test's own process.

    The command line forks before it imports a runtime. A test process has runtimes loaded whose threads a fork would leave
    behind, with the locks that they hold: OpenVINO then waits for ever. What the fork is for is tested with real processes.
    """

    def unsupervised(work: Callable[[], int]) -> int:
        return work()

    monkeypatch.setattr("parityscope.cli.shell.supervise.supervise_work", unsupervised)


@pytest.fixture(autouse=True)
def _little_search(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search for what was computed does a twentieth of its work, or such a share of it as the mark says.

    What a test finds with less than a user's search may take, a user finds too; what must not be found is looked for with twice
    as much, or with all.
    """
    marked = request.node.get_closest_marker("search_of")
    share = marked.args[0] if marked else 0.05
    for place in ("hypotheses.from_outputs.searching.MOST_S", "explanation.generating.SHARE_OF_TIME"):
        module, _, name = f"parityscope.{place}".rpartition(".")
        monkeypatch.setattr(f"{module}.{name}", share * getattr(importlib.import_module(module), name))


@pytest.fixture(scope="session")
def examined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all processes of a run leave what they found in the examples of checks: CODE/holds-NUMBER/study.json."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "examined"


@pytest.fixture(scope="session")
def package() -> Package:
    """TensorRT-RTX, whose parser and builder need no GPU."""
    from parityscope.backends.tensorrt.packages import find_package

    return find_package("rtx")
