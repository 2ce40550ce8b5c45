"""The fixture `parity` for pytest: parity as a test, held against what was measured before, with the report where it fails.

    def test_engine(parity):
        parity("model.onnx", candidate="trt:f16", inputs="samples/")

It fails as `assert_parity` does, with the first screen. `--parity-update` writes what was measured into
`parity/<file>-<test>.json` beside the test; from then on the test fails, too, where an output's error has grown beyond noise,
though it may still be within. Of a test that fails the whole study is written below `--parity-reports`
(by default `parity-reports`), and its `report.html` is named among the properties of the test, which JUnit's XML carries.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from parityscope.api.results import Result

_PROPERTY = "parity_report"
_LARGEST = 1 << 20  # bytes of a baseline: a line an output. Chosen


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the two options."""
    group = parser.getgroup("parityscope")
    group.addoption(
        "--parity-update", action="store_true", help="write the errors that are measured down as the baseline"
    )
    group.addoption(
        "--parity-reports", metavar="DIR", default="parity-reports", help="where studies of failures are written"
    )


@pytest.fixture
def parity(request: pytest.FixtureRequest) -> Parity:
    """Asserts that a deployment computes what its model says: called with what `parityscope.assert_parity` takes."""
    return Parity(request)


class Parity:
    """What the fixture gives: call it, once or more often in a test."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request
        self._calls = 0

    def __call__(self, model: Any, **asked: Any) -> Result:
        """As `parityscope.assert_parity`, and no output's error may have grown beyond the baseline of this test.

        Raises:
            ParityFailure: outputs differ by more than they may, or by more than they did.
            ParityError: bad input, a missing runtime, or a side that cannot run.
        """
        from parityscope.api.asserting import assert_parity
        from parityscope.api.failing import ParityFailure

        self._calls += 1
        try:
            found = assert_parity(model, **asked)
            self._hold(found)
        except ParityFailure as failure:
            if failure.result is not None:
                report = self._report(failure.result)
                failure.args = (f"{failure}\n  Report  {report}",)
            raise
        return found

    def _hold(self, found: Result) -> None:
        """Writes the baseline where that is asked for, else holds what was found against it where there is one."""
        from parityscope.api.failing import ParityFailure

        path = self._baseline()
        measured = {row.name: row.rel_l2 for row in found.outputs if row.rel_l2 is not None}
        if self._request.config.getoption("--parity-update"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"rel_l2": measured}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
            return
        if not path.is_file():
            return
        grown = _errors_grown(_read_baseline(path), measured)
        if grown:
            told = "; ".join(f"{name!r} differs by {now:.3g}, and did by {was:.3g}" for name, was, now in grown)
            failure = ParityFailure(f"still within, and worse than the baseline {path.name}: {told}")
            failure.result = found
            raise failure

    def _baseline(self) -> Path:
        return self._request.path.parent / "parity" / f"{self._name()}.json"

    def _name(self) -> str:
        name = re.sub(r"[^\w.-]+", "_", f"{self._request.path.stem}-{self._request.node.name}").strip("_")
        return name if self._calls == 1 else f"{name}-{self._calls}"

    def _report(self, found: Result) -> Path:
        """Writes the study of a failure; a number tells it from those of earlier runs."""
        parent = self._request.config.rootpath / str(self._request.config.getoption("--parity-reports"))
        parent.mkdir(parents=True, exist_ok=True)
        folder, number = parent / self._name(), 2
        while folder.exists():
            folder, number = parent / f"{self._name()}-{number}", number + 1
        report = found.save(folder).folder or folder
        self._request.node.user_properties.append((_PROPERTY, str(report / "report.html")))
        return report / "report.html"


def _read_baseline(path: Path) -> Mapping[str, float]:
    """The errors of a baseline.

    Raises:
        ParityError: the file is no baseline.
    """
    from parityscope.errors import ParityError
    from parityscope.plain_documents import read_json_file

    held = read_json_file(path, "the baseline", limit=_LARGEST)
    errors = held.get("rel_l2") if isinstance(held, dict) else None
    if not isinstance(errors, dict) or not all(isinstance(one, int | float) for one in errors.values()):
        raise ParityError(
            "this is no baseline of parity", where=str(path), fix="write it again: pytest --parity-update"
        )
    return errors


def _errors_grown(before: Mapping[str, float], now: Mapping[str, float]) -> list[tuple[str, float, float]]:
    """The outputs whose error has grown beyond noise."""
    from parityscope.study.changes.noise import direction_beyond_noise

    return [
        (name, before[name], error)
        for name, error in now.items()
        if name in before and direction_beyond_noise(before[name], error) > 0
    ]
