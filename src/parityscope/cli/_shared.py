"""What diagnose, compare and localize have in common: one record of options, and one way to examine what they ask.

A command is written as `command(shared, *, its own options)`. `spread` makes of it the function with every option as a
parameter of its own, from which typer draws the command line and its help.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.cli import _options as o
from parityscope.cli._finish import finish
from parityscope.cli._output import command_line

if TYPE_CHECKING:
    from parityscope.study import Settings

__all__ = ["Shared", "examined", "spread"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The options that all three take, in the order of their help."""

    model: o.ModelArgument
    candidate: o.CandidateOption
    inputs: o.InputsOption = ""
    reference: o.ReferenceOption = "ort"
    preprocess: o.PreprocessOption = ""
    stacked: o.StackedOption = False
    shapes: o.ShapesOption = None
    samples: o.SamplesOption = None
    seed: o.SeedOption = 0
    study: o.StudyOption = None
    format_name: o.FormatOption = "text"
    declared: o.DeclaredOption = ""
    budget: o.BudgetOption = None
    policy: o.PolicyOption = None
    mapping: o.MapOption = None
    match: o.MatchOption = ""
    images: o.ImagesOption = None
    candidate_inputs: o.OwnOption = None
    memory: o.MemoryOption = "512MiB"
    keep_tensors: o.KeepOption = False
    redact: o.RedactOption = False
    quiet: o.QuietOption = False
    whole: o.AllOption = False


def spread(command: Callable[..., int]) -> Callable[..., int]:
    """`command` itself, or, if it takes a `Shared`, the same with its fields as parameters."""
    parameters = inspect.signature(command).parameters
    if "shared" not in parameters:
        return command
    hints = {
        **typing.get_type_hints(Shared, include_extras=True),
        **typing.get_type_hints(command, include_extras=True),
    }
    own = [one for name, one in parameters.items() if name != "shared"]
    every = [
        *(
            _parameter(one.name, inspect.Parameter.empty if one.default is MISSING else one.default)
            for one in fields(Shared)
        ),
        *own,
    ]

    def run(**values: Any) -> int:  # typer hands every option over by its name
        rest = {one.name: values.pop(one.name) for one in own}
        return command(Shared(**values), **rest)

    run.__doc__ = command.__doc__
    run.__annotations__ = {one.name: hints[one.name] for one in every}
    vars(run).update(__signature__=inspect.Signature([one.replace(annotation=hints[one.name]) for one in every]))
    return run


def examined(shared: Shared, settings: Settings, *, ladder: bool = False) -> int:
    """Examines as far as `settings` go and writes the study; gives the exit code. `ladder` prints that too."""
    from parityscope.backends import Capture, is_recording
    from parityscope.backends.opening import open_target
    from parityscope.study import Question, examine, plain_question, posed, run_facts

    settings = replace(
        settings,
        memory=o.size_of(shared.memory),
        mapping=o.mapping_of(shared.mapping),
        command=command_line(),
    )
    question = Question(
        model=shared.model,
        candidate=shared.candidate,
        reference=shared.reference,
        inputs=shared.inputs,
        preprocess=shared.preprocess,
        stacked=shared.stacked,
        shapes=o.shapes_of(shared.shapes),
        samples=shared.samples,
        seed=shared.seed,
        declared=shared.declared,
        budgets=o.budgets_of(shared.budget),
        policy=shared.policy,
        match=tuple(name for name in shared.match.split(",") if name),
        images=shared.images,
        own_inputs=shared.candidate_inputs,
    )
    with posed(question, memory=settings.memory) as asked:
        for target in (asked.reference, asked.candidate):
            if is_recording(target):  # one that cannot be read is refused before a digest of all its bytes is taken
                with open_target(asked.case.model, target, Capture()):
                    pass
        settings = replace(settings, question=plain_question(question, settings, asked, Path.cwd()))

        def work(folder: Path) -> dict[str, Any]:
            folder.mkdir(parents=True, exist_ok=True)
            return examine(
                asked.case,
                asked.reference,
                asked.candidate,
                folder=folder,
                settings=settings,
                progress=o.progress_for(quiet=shared.quiet),
            )

        return finish(
            o.folder_for(shared.model, shared.study),
            shared.format_name,
            work,
            keep_tensors=shared.keep_tensors,
            redact=shared.redact,
            quiet=shared.quiet,
            ladder=ladder,
            whole=shared.whole,
            numbered=shared.study is None,
            # Only what was recorded or noted of intermediate tensors is worth going on from.
            facts=run_facts(asked.case, asked.reference, asked.candidate) if settings.layers else None,
        )


def _parameter(name: str, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
