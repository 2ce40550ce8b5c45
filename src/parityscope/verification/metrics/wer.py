"""Word error rate: edits that turn the candidate's text into the right one, over the right one's length in words.

Both are pooled over samples (sum of edits over sum of lengths), as speech and text recognition report it. It may exceed
1. A right text of no length counts its edits and adds nothing to the length; with no length at all the rate is 0 for no
edits and infinite otherwise. Labels are strings or token numbers; without labels the reference's text is right.

Outputs may be strings, token numbers or CTC scores, which are decoded greedily (see the options).
"""

from __future__ import annotations

from parityscope.verification.task_metrics import TaskMetric
from parityscope.verification.texts import OPTIONS, error_counts, error_rate, words_of

TASK_METRIC = TaskMetric(
    name="wer",
    title="Word error rate",
    better="lower",
    score=error_counts(words_of),
    combine=error_rate,
    options=OPTIONS,
)
