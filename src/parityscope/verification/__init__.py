"""Before and after on the undisturbed deployment -> Verification: does the repair hold?

`verify` runs the reference, the deployment as it was and the repaired one on all samples, without capturing a tensor,
measures both against the reference, and judges paired differences:

* `exact`, `intervals`: statistics, each formula with its source;
* `task_metrics`, `metrics/`: how well the task is done, one metric a file; `user_metric` for functions of the user's;
* `labels`: what is right, when somebody knows;
* `running`, `output_errors`, `quantities`, `budgets`, `latency`: what is measured;
* `judging`: improved, within, not proved, worse or beyond, and why.
"""

from __future__ import annotations

from parityscope.verification.labels import SampleLabels, load_labels
from parityscope.verification.records import Verification
from parityscope.verification.task_metrics import Chosen, TaskAnswer, TaskMetric, chosen_metric, task_metrics
from parityscope.verification.user_metric import metric_asked
from parityscope.verification.verifying import Targets, VerificationSettings, verify

__all__ = [
    "Chosen",
    "SampleLabels",
    "Targets",
    "TaskAnswer",
    "TaskMetric",
    "Verification",
    "VerificationSettings",
    "chosen_metric",
    "load_labels",
    "metric_asked",
    "task_metrics",
    "verify",
]
