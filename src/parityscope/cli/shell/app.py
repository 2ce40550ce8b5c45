"""The subcommands in one application, with help texts from their docstrings.

A subcommand is a file of `cli/` that has a `NAME` and a `command`; nothing else has to be edited.

Words that need no conversion are taken as they are.

typer converts each through pydantic, whose import takes an eighth of a short command. What needs a conversion, or is wrong,
goes typer's own way, with its own messages.
"""

from __future__ import annotations

import functools
import importlib
import os
import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
import typer.main
from typer import core

from parityscope import cli
from parityscope.cli._requesting import spread_options
from parityscope.cli.shell.help import GroupedCommand
from parityscope.cli.shell.prepared import tell_version
from parityscope.errors import Exit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

_ITEMS = {str: str, Path: Path, list[str]: str, list[Path]: Path}
# The main road comes first in the help; what has no place here follows by name, with the start of its docstring.
COMMANDS: Mapping[str, str] = {
    "diagnose": "Is it different, where does it begin, why, what repairs it.",
    "compare": "The outputs of two targets, or every layer, side by side.",
    "localize": "What each layer adds to the error, and what it inherits.",
    "predict": "What FP16, BF16, TF32 or FP8 will do, without the target.",
    "look": "A model before it is deployed; parityscope MODEL does it.",
    "lint": "What a model's file alone says about lower precision.",
    "log": "A TensorRT log in words; two builds compared.",
    "network": "TensorRT's view of a model, without a GPU.",
    "pipeline": "A chain of models, stage by stage: the first that differs.",
    "preprocessing": "Where two preprocessings of the same images part.",
    "repair": "The smallest change that meets a budget, certified.",
    "verify": "A repair proved: before and after on the real deployment.",
    "evaluate": "The faithful error of a low-precision model, on a CPU.",
    "run": "One target on the samples, as a recording.",
    "check": "Every model of a policy file, held against a baseline.",
    "matrix": "Models x versions x targets x settings as one table.",
    "diff": "Two studies: what became better or worse, since what.",
    "serve": "The studies of a folder in a browser, two compared.",
    "report": "A study rendered again, as text, HTML, JSON or an overlay.",
    "open": "A study's network in a viewer of models, or its report.",
    "experiment": "One experiment of a study again, alone.",
    "reduce": "The smallest model that shows a finding, for a bug report.",
    "explain": "The page of a check or rule, by its code.",
    "list": "What there is: backends, checks, rules, metrics, repairs.",
    "doctor": "What can run here, what is missing, and how to get it.",
    "mcp": "The verbs as tools of an assistant (Model Context Protocol).",
    "new": "A working plug-in to start from.",
    "completion": "TAB for verbs, options and targets in bash, zsh and fish.",
}
_EPILOG = (
    "Start with: parityscope MODEL; with a deployment: parityscope diagnose MODEL --candidate TARGET --inputs DATA "
    "(docs/targets.md and docs/inputs.md say what they can be). Exit codes: 0 within policy, 1 beyond, 2 could not examine, "
    "3 something asked for was not judged."
)


@functools.cache
def _take_plain_words() -> None:
    """From now on in this process parameters take text, paths and numbers that are numbers already without a conversion."""
    for kind in (core.TyperOption, core.TyperArgument):
        build = getattr(kind, "get_runtime_param", None)
        if build is not None:  # another typer: as it does it itself
            kind.get_runtime_param = functools.partialmethod(_converter, build)  # type: ignore[method-assign, assignment]


def _converter(parameter: Any, build: Any) -> Any:  # typer's own, which has no public types
    form = parameter.type_descriptor.annotation
    return _Plain(form, parameter, build) if form in {*_ITEMS, bool, int, float} else build(parameter)


class _Plain:
    """Stands where the converter of a parameter does, which `build` makes when it is needed."""

    def __init__(self, form: Any, parameter: Any, build: Any) -> None:
        self.form, self.parameter, self.build = form, parameter, build

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The converted value."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        item = _ITEMS.get(self.form)
        if item is None and type(value) is self.form:
            return value
        if item is self.form and _is_plain(value, item):
            return item(value)
        if (
            item not in {None, self.form}
            and isinstance(value, list | tuple)
            and all(_is_plain(one, item) for one in value)
        ):
            return [item(one) for one in value]
        return self.build(self.parameter).coerce(value, param=param, ctx=ctx)


def _is_plain(value: object, form: Any) -> bool:
    if form is str:
        return isinstance(value, str)
    return isinstance(value, Path) or (
        isinstance(value, str) and (os.access(value, os.R_OK) or not os.path.lexists(value))
    )


def command(words: Sequence[str] = ()) -> Callable[..., object]:
    """What `parityscope` runs: call it with args, prog_name and standalone_mode.

    Where the first of `words` names a subcommand, that one alone is imported.
    """
    app = typer.Typer(
        help="Tells why a deployed neural network disagrees with the original, where it starts, and how to repair it.",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    for module in sorted(_load_modules(words[0] if words else ""), key=_place_of):
        app.command(module.NAME, cls=GroupedCommand, short_help=COMMANDS.get(module.NAME))(
            spread_options(module.command)
        )
    app.callback(invoke_without_command=True, epilog=_EPILOG)(_version_only)
    _take_plain_words()
    return typer.main.get_command(app)


def _load_modules(first: str) -> list[ModuleType]:
    """The subcommand called `first`, or all where there is none: a file has its command's name, or that and a `_`."""
    names = [info.name for info in pkgutil.iter_modules(cli.__path__) if not (info.ispkg or info.name.startswith("_"))]
    chosen = [name for name in names if name.rstrip("_") == first]
    return [importlib.import_module(f"{cli.__name__}.{name}") for name in chosen or names]


def _place_of(module: ModuleType) -> tuple[int, str]:
    order = list(COMMANDS)
    return (order.index(module.NAME) if module.NAME in order else len(order)), module.NAME


def _version_only(
    context: typer.Context,
    *,
    version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True),
    lang: str = typer.Option("", "--lang", help="en or zh; every command takes it [PARITYSCOPE_LANG, else en]."),
) -> None:
    del lang  # taken from the words before they are parsed (`_language.py`), so that it may stand anywhere
    if version:
        typer.echo(tell_version())
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(Exit.UNUSABLE)
