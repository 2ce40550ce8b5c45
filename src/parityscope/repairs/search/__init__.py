"""The mixed-precision search: which nodes to keep in FP32, found, measured and proved.

In: a `RepairTask` (a model, samples, a low format, budgets). Out: a `RepairOutcome`, and a model on disk. An evaluation is
one run of the switchable graph over the search samples; certification is counted apart.

* `screen`, `within`, `ranging`, `folding`: one FP32 run per sample; what cannot be low, inside of bodies too, and range repairs
  that make it possible after all;
* `finding`: two probes, then sensitivities (`sense`, or all at once by `reverse`) and exact minimum cuts (`cut`) of a
  cost model (`network`, `costs`), bisected with real evaluations (`cutting`, `oracle`, `judging`) and bettered
  (`improving`);
* `labels`, `fp8`, `second`: more formats than one;
* `proving`: the written model (`writing`) on samples that were held out (`splitting`);
* `driving`: all of it.
"""

from __future__ import annotations

from parityscope.repairs.search.driving import search_repair
from parityscope.repairs.search.records import (
    DEFAULT_BUDGET,
    Certificate,
    Flag,
    KeptNode,
    Point,
    RangeEdit,
    RepairOutcome,
    RepairTask,
)

__all__ = [
    "DEFAULT_BUDGET",
    "Certificate",
    "Flag",
    "KeptNode",
    "Point",
    "RangeEdit",
    "RepairOutcome",
    "RepairTask",
    "search_repair",
]
