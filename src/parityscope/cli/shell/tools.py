"""The verbs as tools of a language model: what each takes, and the words of the command line that a call means.

A call may name what lies below one folder, the root, and nothing else; what is more than data (a program, a Python function,
another machine, a plug-in) is refused unless the server was started to allow it.
"""

from __future__ import annotations

import functools
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.backends import backend_named
from parityscope.backends.targets import check_target, format_target, named_code, parse_target
from parityscope.case.formats.loader import is_function
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.times import stamp_now

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NUMBERS = itertools.count(1)  # of two studies in one second
_TYPES: dict[str, dict[str, Any]] = {
    "count": {"type": "integer", "minimum": 1},
    "switch": {"type": "boolean"},
    "texts": {"type": "array", "items": {"type": "string"}},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBounds:
    """What calls may name: paths below `root`, and code only where that is allowed."""

    root: Path
    allow_code: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolParameter:
    """A parameter of a tool.

    `kind` is "file" (a path), "data" (a path, or code), "checks" (a policy file that names some), "target", "count", "switch",
    "text" or "texts"; `option` what it is on the command line, "" for an argument.
    """

    name: str
    kind: str
    told: str
    option: str
    required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A verb as a tool; `study` says whether it writes one."""

    verb: str
    told: str
    parameters: tuple[ToolParameter, ...]
    study: bool


# Of each verb the arguments and options that a call may give, and what each names: no file and no code where that is "".
# What is not listed cannot be given. Words, help and types are the command line's.
_SAMPLED = {"model": "file", "inputs": "data", "preprocess": "data", "samples": "count"}
_DEPLOYED = {**_SAMPLED, "candidate": "target", "reference": "target", "declared": "", "policy": "file", "budget": ""}
_OFFERED: dict[str, dict[str, str]] = {
    "diagnose": _DEPLOYED,
    "compare": _DEPLOYED,
    "localize": _DEPLOYED,
    "predict": {**_SAMPLED, "formats": ""},
    "lint": {"model": "file", "formats": ""},
    "log": {"file": "file", "other": "file"},
    "repair": {**_SAMPLED, "low": "", "candidate": "target", "budget": "", "output": "file"},
    "verify": {**_SAMPLED, "before": "target", "after": "target", "budget": "", "no_timing": ""},
    "diff": {"before": "file", "after": "file"},
    "check": {"file": "checks", "only": "", "no_causes": ""},
    "report": {"study": "file", "all": ""},
    "explain": {"code": ""},
    "doctor": {},
}
_NEEDED = {"repair": "output"}  # beside what the commands themselves need: a call wants the model


@functools.cache
def known_tools() -> Mapping[str, Tool]:
    """The verbs by name, with the words and the help of the command line."""
    from parityscope.cli.shell import app

    commands: Any = app.command()
    return {verb: _tool_of(commands.commands[verb], verb, app.COMMANDS[verb]) for verb in _OFFERED}


def _tool_of(command: Any, verb: str, told: str) -> Tool:
    found = [_parameter_of(one, _OFFERED[verb], needed=_NEEDED.get(verb, "")) for one in command.params]
    offered = tuple(one for one in found if one.name in _OFFERED[verb])
    return Tool(verb=verb, told=told, parameters=offered, study=any(one.option == "--study" for one in found))


def _parameter_of(parameter: Any, kinds: Mapping[str, str], needed: str) -> ToolParameter:
    """A parameter of a command, called as it is on the command line: `--no-timing` is `no_timing`."""
    option = parameter.opts[-1] if parameter.param_type_name == "option" else ""
    name = option.lstrip("-").replace("-", "_") or parameter.name
    return ToolParameter(
        name=name,
        kind=kinds.get(name)
        or ("switch" if option and parameter.is_flag else "texts" if parameter.multiple else "text"),
        told=parameter.help or "",
        option=option,
        required=parameter.required or name == needed,
    )


def schema_of_tool(tool: Tool) -> dict[str, Any]:
    """The JSON Schema of what a tool takes."""
    properties = {
        one.name: {**_TYPES.get(one.kind, {"type": "string"}), "description": one.told} for one in tool.parameters
    }
    required = [one.name for one in tool.parameters if one.required]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def words_of_call(name: str, given: Mapping[str, Any], bounds: CallBounds) -> tuple[list[str], str]:
    """The words of the command line that a call means, and the folder of its study ("" where it writes none).

    Raises:
        ParityError: there is no such tool or parameter, something has another type, or it names what it may not.
    """
    tools = known_tools()
    tool = tools.get(name)
    if tool is None:
        raise ParityError(f"there is no tool {name!r}", fix=f"use one of: {', '.join(tools)}")
    known = {one.name: one for one in tool.parameters}
    for key in given:
        if key not in known:
            raise ParityError(f"{name} has no parameter {key!r}", fix=f"use some of: {', '.join(known)}")
    missing = [one.name for one in tool.parameters if one.required and given.get(one.name) in (None, "")]
    if missing:
        raise ParityError(f"{name} needs {missing[0]}", fix=f"give {missing[0]}: {known[missing[0]].told}")
    options, arguments = [], []
    for one in tool.parameters:
        for word in _words_of_value(one, given.get(one.name), bounds):
            if one.option:
                options.append(one.option if one.kind == "switch" else f"{one.option}={word}")
            else:
                arguments.append(word)
    study = ""
    if tool.study:
        study = f"parityscope-{name}-{stamp_now()}-{os.getpid()}-{next(_NUMBERS)}"
        options.append(f"--study={study}")
    return [name, *options, "--", *arguments], study


def _words_of_value(parameter: ToolParameter, value: Any, bounds: CallBounds) -> Iterator[str]:
    """What stands on the command line for a value; nothing where it was left out."""
    if parameter.kind == "checks":
        value = value or "parityscope.toml"
    if value in (None, "", False, []):
        return
    if not _fits_kind(parameter.kind, value):
        raise ParityError(
            f"{parameter.name} = {value!r} has another type", fix=f"give {parameter.name}: {parameter.told}"
        )
    if parameter.kind == "texts":
        yield from map(str, value)
    elif parameter.kind in {"file", "data"}:
        yield _confine_data(value, bounds) if parameter.kind == "data" else _confine_path(value, bounds.root)
    elif parameter.kind == "target":
        yield _confine_target(value, bounds)
    elif parameter.kind == "checks":
        yield _confine_checks(value, bounds)
    else:
        yield str(value)


def _fits_kind(kind: str, value: Any) -> bool:
    if kind == "count":
        return type(value) is int and value > 0
    return type(value) is {"switch": bool, "texts": list}.get(kind, str)


def _confine_path(text: str, root: Path) -> str:
    """The path from the root.

    Raises:
        ParityError: it leads out of the root, links followed.
    """
    try:
        path = (root / text).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a circle of links; what no name can hold
        raise ParityError(f"{text!r} is no path: {error}", fix="name a path below the server's root") from error
    if not path.is_relative_to(root):
        raise ParityError(
            f"{text} lies outside of {root}", fix="name a path below it, or start with: parityscope mcp --root FOLDER"
        )
    return str(path.relative_to(root))


def _confine_data(text: str, bounds: CallBounds) -> str:
    if is_function(text):
        _refuse_code(text, bounds)
        return text
    inside = _confine_path(text, bounds.root)
    if is_function(inside):  # "file.py:function/", or a link to it: what is run is the path that was found
        _refuse_code(text, bounds)
    return inside


def _confine_target(text: str, bounds: CallBounds) -> str:
    """The target, whose files lie below the root; what of it is code is refused unless that is allowed."""
    target = parse_target(text)
    backend = backend_named(target.backend)
    check_target(target, backend)
    code = named_code(target, backend)
    if code:
        _refuse_code(f"{', '.join(code)} of {text}", bounds)
        return text
    for key, value in target.options:
        if key in {"model", *backend.files} or os.sep in value or _is_there(bounds.root / value):
            _confine_path(value, bounds.root)
    return format_target(target)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # too long for a name
        return False


def _confine_checks(text: str, bounds: CallBounds) -> str:
    """A policy file, each of whose checks names only what a call may name."""
    from parityscope.study.checking.pairs import read_check_file

    inside = _confine_path(text, bounds.root)
    held = read_check_file(bounds.root / inside, 1 << 29)
    _confine_path(str(held.baseline), bounds.root)
    for pair in held.pairs:
        request = pair.request
        _confine_path(str(request.model), bounds.root)
        for data in (request.inputs, request.preprocess):
            if data:
                _confine_data(str(data), bounds)
        for target in (request.candidate, request.reference):
            _confine_target(target, bounds)
    return inside


def _refuse_code(what: str, bounds: CallBounds) -> None:
    if not bounds.allow_code:
        raise ParityError(
            f"{what} is code or another machine, which a call may not name",
            fix="start with: parityscope mcp --allow-code, where whoever calls may run programs as you",
        )
