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

The verbs of the command line are functions here: `diagnose`, `compare`, `localize`, `predict`, `repair`, `run`, `verify`,
`diff`; `assert_parity` is for tests, and `load_study` reads a study again. Nothing is imported before one of them is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.version import __version__

if TYPE_CHECKING:
    from parityscope.api.asserting import assert_parity
    from parityscope.api.failing import ParityFailure
    from parityscope.api.model_verbs import repair, run
    from parityscope.api.results import Result
    from parityscope.api.verbs import compare, diagnose, diff, load_study, localize, predict, verify

__all__ = [
    "ParityError",
    "ParityFailure",
    "Result",
    "__version__",
    "assert_parity",
    "compare",
    "diagnose",
    "diff",
    "load_study",
    "localize",
    "predict",
    "repair",
    "run",
    "verify",
]
_HOMES = {
    "ParityFailure": "failing",
    "Result": "results",
    "assert_parity": "asserting",
    **dict.fromkeys(("compare", "diagnose", "diff", "load_study", "localize", "predict", "verify"), "verbs"),
    **dict.fromkeys(("repair", "run"), "model_verbs"),
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.api.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
