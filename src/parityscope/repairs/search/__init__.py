"""The mixed-precision search: which nodes to keep in FP32, found, measured and proved.

In: a `Task` (a model, samples, a low format, budgets). Out: an `Outcome`, and a model on disk. An evaluation is one run
of the switchable graph over the search samples; certification is counted apart.

* `screen`, `ranging`: one FP32 run per sample; what cannot be low, and range repairs that make it possible after all;
* `finding`: two probes, then sensitivities (`sense`) and exact minimum cuts (`cut`, `maxflow`) of a cost model
  (`network`, `costs`), bisected with real evaluations (`oracle`, `judging`);
* `proving`: the written model (`writing`) on samples that were held out (`splitting`);
* `driving`: all of it; `front`: error against cost.
"""

from __future__ import annotations

from parityscope.repairs.search.driving import search
from parityscope.repairs.search.records import Certificate, Edit, Flag, Kept, Outcome, Point, Task

__all__ = ["Certificate", "Edit", "Flag", "Kept", "Outcome", "Point", "Task", "search"]
