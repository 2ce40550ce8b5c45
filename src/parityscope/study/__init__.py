"""The whole chain as one versioned record on disk.

`examine_request` compares the outputs on every sample, predicts what each format would cost, judges, localizes, tests causes,
tries repairs on copies of the model, and gives the document that every report is drawn from (schema "parityscope/1",
strict JSON). `open_request` makes the `Examination` of what a user asked (`Request`), of which nothing is known yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parityscope.examination import Examination
    from parityscope.request import Request
    from parityscope.study._budgets import known_metrics, stated_budget
    from parityscope.study._examining import examine_request
    from parityscope.study._experiment_again import Repeated, experiments_of, repeat_experiment
    from parityscope.study._folder import (
        Study,
        as_written,
        folder_of,
        load_study,
        name_files_from_here,
        prepare_folder,
        refuse_taken,
        to_strict_data,
        write_known,
        write_study,
    )
    from parityscope.study._opening import open_request
    from parityscope.study._pipeline import PIPELINE_SCHEMA, examine_pipeline
    from parityscope.study._pipeline_file import Pipeline, Stage, read_pipeline
    from parityscope.study._question import question_of
    from parityscope.study._sample_columns import COLUMNS, list_errors
    from parityscope.study._scratch_folder import run_facts

__all__ = [
    "COLUMNS",
    "PIPELINE_SCHEMA",
    "Examination",
    "Pipeline",
    "Repeated",
    "Request",
    "Stage",
    "Study",
    "as_written",
    "examine_pipeline",
    "examine_request",
    "experiments_of",
    "folder_of",
    "known_metrics",
    "list_errors",
    "load_study",
    "name_files_from_here",
    "open_request",
    "prepare_folder",
    "question_of",
    "read_pipeline",
    "refuse_taken",
    "repeat_experiment",
    "run_facts",
    "stated_budget",
    "to_strict_data",
    "write_known",
    "write_study",
]
# Most commands read a study, or only ask whether its place is taken: what makes one is imported where one is made (69 of 271
# modules of `lint`, a tenth of its processor time).
_HOMES = {
    name: home
    for home, names in {
        "parityscope.examination": "Examination",
        "parityscope.request": "Request",
        "parityscope.study._budgets": "known_metrics stated_budget",
        "parityscope.study._examining": "examine_request",
        "parityscope.study._experiment_again": "Repeated experiments_of repeat_experiment",
        "parityscope.study._folder": "Study as_written folder_of load_study name_files_from_here prepare_folder refuse_taken "
        "to_strict_data write_known write_study",
        "parityscope.study._opening": "open_request",
        "parityscope.study._pipeline": "PIPELINE_SCHEMA examine_pipeline",
        "parityscope.study._pipeline_file": "Pipeline Stage read_pipeline",
        "parityscope.study._question": "question_of",
        "parityscope.study._sample_columns": "COLUMNS list_errors",
        "parityscope.study._scratch_folder": "run_facts",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(name)
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
