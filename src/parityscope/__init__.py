"""Parityscope tells why a deployed network disagrees with the original, where it starts, and how to repair it.

Data flows one way through these modules, first to last:

* `records`      : the core types;
* `trace`        : tensors of one run, lazy, on disk;
* `case`         : model + inputs + policy, the only place that reads ONNX graphs;
* `arithmetic`   : number formats, rounding, error models;
* `evaluation`   : a network in several arithmetics at once, step by step;
* `comparison`   : (reference, candidate) -> measurements;
* `backends`     : (case, target) -> trace, the only code that runs models;
* `pairing`      : which tensor of another graph is which;
* `linting`      : what a file says without a run;
* `expectation`  : the FP32 noise floor, the expected error of each format, grades, forecasts;
* `localization` : introduced and inherited error, and what of it reaches the outputs;
* `explanation`  : which arithmetic, or which other function, a layer's error is;
* `checks`       : one hypothesis a file, as experiments;
* `diagnosis`    : chooses, runs and ranks them;
* `repairs`      : finding -> patch on a copy; the search for the smallest set of nodes in FP32;
* `verification` : before and after on the undisturbed deployment;
* `study`        : the chain as one record on disk;
* `report`, `cli`: how it is shown;
* `api`          : the same for Python.

The verbs of the command line are functions here, under their names (`list` is `list_plugins`, `report` is `load_report` or a
result's `save`); `assert_parity` is for tests, and `load_study` reads a study again. What is about a shell or a process that
lasts has none: `serve`, `mcp`, `open`, `new`, `completion`. Nothing is imported before one of them is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.version import __version__

if TYPE_CHECKING:
    from parityscope.api.asserting import assert_parity
    from parityscope.api.failing import ParityFailure
    from parityscope.api.model_verbs import lint, look, network, predict, repair, run, verify
    from parityscope.api.results import Report, Result
    from parityscope.api.study_verbs import diff, experiment, load_report, load_study, reduce
    from parityscope.api.suite_verbs import check, matrix, pipeline
    from parityscope.api.tool_verbs import doctor, explain, list_plugins, log, preprocessing
    from parityscope.api.verbs import compare, diagnose, evaluate, localize

__all__ = [
    "ParityError",
    "ParityFailure",
    "Report",
    "Result",
    "__version__",
    "assert_parity",
    "check",
    "compare",
    "diagnose",
    "diff",
    "doctor",
    "evaluate",
    "experiment",
    "explain",
    "lint",
    "list_plugins",
    "load_report",
    "load_study",
    "localize",
    "log",
    "look",
    "matrix",
    "network",
    "pipeline",
    "predict",
    "preprocessing",
    "reduce",
    "repair",
    "run",
    "verify",
]
_HOMES = {
    "ParityFailure": "failing",
    "Report": "results",
    "Result": "results",
    "assert_parity": "asserting",
    **dict.fromkeys(("compare", "diagnose", "evaluate", "localize"), "verbs"),
    **dict.fromkeys(("lint", "look", "network", "predict", "repair", "run", "verify"), "model_verbs"),
    **dict.fromkeys(("diff", "experiment", "load_report", "load_study", "reduce"), "study_verbs"),
    **dict.fromkeys(("check", "matrix", "pipeline"), "suite_verbs"),
    **dict.fromkeys(("doctor", "explain", "list_plugins", "log", "preprocessing"), "tool_verbs"),
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.api.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
