"""Top-5 accuracy: the share of rows whose right class is among the 5 best.

Rows are the last axis of the output; a batch or a sequence has several. Right is the label (one integer class a row) or,
without labels, the reference's own choice. With one row a sample, McNemar's exact test compares the decisions.

Known faults: coarse for few samples, and blind to how sure a choice is; look at the output's `kl_mean` beside it.
"""

from __future__ import annotations

from parityscope.verification.metrics._ranking import among_best
from parityscope.verification.task_metrics import TaskMetric, mean_of_numbers

TASK_METRIC = TaskMetric(
    name="top5", title="Top-5 accuracy", better="higher", score=among_best(5), combine=mean_of_numbers
)
