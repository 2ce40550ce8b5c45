"""The options that commands share as the records that they mean: what is asked, how it is handed over, DATA and how it is read.

A command is written as `command(request, delivery, *, its own options)`, or takes `data`. `spread_options` makes of it the
function with every option as a parameter of its own, from which typer draws the command line and its help.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from parityscope.cli import _options as o
from parityscope.cli._delivery import Delivery, finish_study
from parityscope.cli.shell.answering import Answer
from parityscope.cli.shell.output import command_line
from parityscope.cli.shell.progress import progress_for
from parityscope.request import Data, Judged

if TYPE_CHECKING:
    from parityscope.request import Request


# Of each option that all three take, in the order of their help: its form, what stands where it is left out.
_OPTIONS: dict[str, tuple[Any, Any]] = {
    "model": (o.ModelArgument, inspect.Parameter.empty),
    "candidate": (o.CandidateOption, inspect.Parameter.empty),
    "inputs": (o.InputsOption, ""),
    "reference": (o.ReferenceOption, "ort"),
    "preprocess": (o.PreprocessOption, ""),
    "stacked": (o.StackedOption, False),
    "shapes": (o.ShapesOption, None),
    "samples": (o.SamplesOption, None),
    "seed": (o.SeedOption, 0),
    "study": (o.StudyOption, None),
    "format_name": (o.FormatOption, "text"),
    "output": (o.OutputOption, None),
    "declared": (o.DeclaredOption, ""),
    "budgets": (o.BudgetOption, None),
    "policy": (o.PolicyOption, None),
    "mapping": (o.MapOption, None),
    "match": (o.MatchOption, ""),
    "decide": (o.DecideOption, None),
    "images": (o.ImagesOption, None),
    "candidate_inputs": (o.OwnOption, None),
    "memory": (o.MemoryOption, "512MiB"),
    "allow_skipped": (o.AllowSkippedOption, "0"),
    "until_sure": (o.UntilSureOption, ""),
    "keep_tensors": (o.KeepOption, False),
    "redact": (o.RedactOption, False),
    "quiet": (o.QuietOption, False),
    "whole": (o.AllOption, False),
    "ladder": (o.LadderOption, False),
}
# Of an answer that is no study; what stands here comes before what stands above.
_ANSWERED: dict[str, tuple[Any, Any]] = {
    "kept": (o.KeptOption, None),
    "format_name": (o.PageFormatOption, "text"),
    "output": (o.PageOption, None),
    "quiet": (o.QuietOption, False),
}
_READ: dict[str, Callable[[Any], Any]] = {
    "shapes": o.shapes_of,
    "output": lambda paths: tuple(paths or ()),
    "budgets": o.budgets_of,
    "mapping": o.mapping_of,
    "match": o.names_of,
    "decide": o.decisions_of,
    "memory": o.size_of,
    "allow_skipped": o.share_of,
    "until_sure": o.confidence_of,
}


# The records that a command may take, by the names of the parameters that they are for, and the options that each holds.
_DATA = tuple(one.name for one in fields(Data))
_JUDGED = tuple(one.name for one in fields(Judged))
_DELIVERY = tuple(one.name for one in fields(Delivery) if one.name in _OPTIONS)
_HELD = {
    "data": _DATA,
    "judged": _JUDGED,
    "delivery": _DELIVERY,
    "request": tuple(name for name in _OPTIONS if name not in _DELIVERY),
    "answer": tuple(_ANSWERED),
    "told": tuple(name for name in _ANSWERED if name != "kept"),
}


def spread_options(command: Callable[..., int]) -> Callable[..., int]:
    """`command` itself, or, if it takes records of `_HELD`, the same with the options of those as parameters.

    What the command declares under the name of such an option stands in the place of it.
    """
    parameters = inspect.signature(command).parameters
    records = [name for name in parameters if name in _HELD]
    if not records:
        return command
    names = {"Request": object, "Delivery": object, "Answer": object}
    hints = typing.get_type_hints(command, localns=names, include_extras=True)
    own = [one for name, one in parameters.items() if name not in _HELD]
    forms = {**_OPTIONS, **_ANSWERED} if {"answer", "told"} & {*records} else _OPTIONS
    shared = [name for name in forms if any(name in _HELD[one] for one in records) and name not in parameters]
    every = [_parameter_of(one.name, one.default, hints[one.name]) for one in own]
    before = list(parameters).index(records[0])
    every[before:before] = [_parameter_of(name, *reversed(forms[name])) for name in shared]

    def run(**values: Any) -> int:  # typer hands every option over by its name
        rest = {one.name: values[one.name] for one in own}
        made = {
            one: _make_record(one, {name: _read_value(name, values[name]) for name in _HELD[one]}) for one in records
        }
        try:
            return command(**made, **rest)
        except KeyboardInterrupt as interrupt:
            # A bare interrupt becomes an exit code inside typer, and what it says would be lost.
            raise typer.Abort from interrupt

    run.__doc__ = command.__doc__
    run.__annotations__ = {one.name: one.annotation for one in every}
    vars(run).update(__signature__=inspect.Signature(every))
    return run


def _make_record(name: str, values: dict[str, Any]) -> object:
    if name == "data":
        return Data(**values)
    if name == "judged":
        return Judged(**values)
    if name == "delivery":
        return Delivery(**values)
    if name in {"answer", "told"}:
        return Answer(**values)
    from parityscope.request import Request

    return Request(**values)


def answer_request(request: Request, delivery: Delivery) -> int:
    """Examines what is asked and writes the study; gives the exit code."""
    from parityscope.backends import Capture, is_recording
    from parityscope.backends.opening import open_target
    from parityscope.study import examine_request, open_request, question_of, run_facts

    with open_request(request) as opened:
        for target in (opened.reference, opened.candidate):
            if is_recording(target):  # one that cannot be read is refused before a digest of all its bytes is taken
                with open_target(opened.case.model, target, Capture()):
                    pass
        asked = replace(
            opened,
            question=question_of(opened, Path.cwd()),
            command=command_line(),
            progress=progress_for(quiet=delivery.quiet),
        )
        # What was recorded or noted of intermediate tensors, and what workers finished, is worth going on from.
        facts = run_facts(asked) if request.goes_to("tensors") or request.workers else None
        return finish_study(
            Path(request.model),
            delivery,
            lambda folder, keep: examine_request(replace(asked, folder=folder, keep=keep)),
            facts,
        )


def _read_value(name: str, typed: Any) -> Any:
    return _READ[name](typed) if name in _READ else typed


def _parameter_of(name: str, default: object, form: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=form)
