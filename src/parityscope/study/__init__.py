"""The whole chain as one versioned record on disk.

`examine` compares the outputs on every sample, predicts what each format would cost, judges, localizes, tests causes,
tries repairs on copies of the model, and gives a `Study`: the document that every report is drawn from (schema
"parityscope/1", strict JSON) and the folder it is written to.
"""

from __future__ import annotations

from parityscope.study._alone import Repeated, experiments_of, repeat
from parityscope.study._budgets import known_metrics, stated_budget
from parityscope.study._examine import Settings, examine
from parityscope.study._folder import Study, as_written, folder_of, load_study, prepare_folder, write_study
from parityscope.study._kept import plain_question
from parityscope.study._pipeline import PIPELINE_SCHEMA, examine_pipeline
from parityscope.study._pipeline_file import Pipeline, Stage, read_pipeline
from parityscope.study._question import Posed, Question, posed
from parityscope.study._resume import run_facts

__all__ = [
    "PIPELINE_SCHEMA",
    "Pipeline",
    "Posed",
    "Question",
    "Repeated",
    "Settings",
    "Stage",
    "Study",
    "as_written",
    "examine",
    "examine_pipeline",
    "experiments_of",
    "folder_of",
    "known_metrics",
    "load_study",
    "plain_question",
    "posed",
    "prepare_folder",
    "read_pipeline",
    "repeat",
    "run_facts",
    "stated_budget",
    "write_study",
]
