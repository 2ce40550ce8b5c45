"""The verbs as tools of a language model: what each takes, and the words of the command line that a call means.

A call may name what lies below one folder, the root, and nothing else; what is more than data (a program, a Python function,
another machine, a plug-in) is refused unless the server was started to allow it.
"""

from __future__ import annotations

import itertools
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.backends import backend_named
from parityscope.backends.targets import check_target, format_target, named_code, parse_target
from parityscope.case.formats.loader import is_function
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["TOOLS", "CallBounds", "Tool", "ToolParameter", "schema_of_tool", "words_of_call"]

_NUMBERS = itertools.count(1)  # of two studies in one second
_TYPES: dict[str, dict[str, Any]] = {"count": {"type": "integer", "minimum": 1}, "switch": {"type": "boolean"}}
_TEXTS = {"type": "array", "items": {"type": "string"}}


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
    option: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A verb as a tool; `study` says whether it writes one."""

    verb: str
    told: str
    parameters: tuple[ToolParameter, ...] = field(default=())
    study: bool = False


def _argument(name: str, kind: str, told: str, *, required: bool = True) -> ToolParameter:
    return ToolParameter(name=name, kind=kind, told=told, required=required)


def _option(name: str, kind: str, told: str, *, required: bool = False, option: str = "") -> ToolParameter:
    return ToolParameter(
        name=name, kind=kind, told=told, option=option or f"--{name.replace('_', '-')}", required=required
    )


_MODEL = _argument("model", "file", "The reference model (.onnx).")
_TARGET = (
    "backend[:precision][?key=value&...], for example openvino:f16, ort?model=converted.onnx or saved?path=recording"
)
_INPUTS = _option(
    "inputs", "data", "Real samples: .npz, a folder of them, recorded inputs; without them they are made up."
)
_PREPROCESS = _option("preprocess", "data", "A recipe (.toml) for a folder of images.")
_SAMPLES = _option("samples", "count", "At most so many samples.")
_POLICY = _option("policy", "file", "What counts as within (.toml).")
_BUDGETS = _option("budgets", "texts", "METRIC=VALUE or OUTPUT:METRIC=VALUE.", option="--budget")
_ASKED = (
    _MODEL,
    _option("candidate", "target", f"The deployment: {_TARGET}.", required=True),
    _INPUTS,
    _PREPROCESS,
    _SAMPLES,
    _option("reference", "target", "The reference's target; ONNX Runtime on the CPU if left out."),
    _option("declared", "text", "The arithmetic that the deployment declares: f32, tf32, f16, bf16 or int8."),
    _POLICY,
    _BUDGETS,
)

TOOLS: dict[str, Tool] = {
    one.verb: one
    for one in (
        Tool(
            verb="diagnose",
            told="Why a deployed model disagrees with the original: is it usable, why not, where it begins, what repairs it.",
            parameters=_ASKED,
            study=True,
        ),
        Tool(verb="compare", told="Whether the outputs of a deployment agree.", parameters=_ASKED, study=True),
        Tool(verb="localize", told="What each layer adds to the error.", parameters=_ASKED, study=True),
        Tool(
            verb="predict",
            told="What FP16, BF16, TF32 or FP8 will do to a model, without a deployment.",
            parameters=(_MODEL, _INPUTS, _PREPROCESS, _SAMPLES, _option("formats", "text", "For example f16,bf16.")),
        ),
        Tool(
            verb="lint",
            told="What a model's file alone says about lower precision.",
            parameters=(_MODEL, _option("formats", "text", "For example f16,bf16.")),
        ),
        Tool(
            verb="log",
            told="A TensorRT, trtexec or Polygraphy log in words; two builds compared.",
            parameters=(
                _argument("file", "file", "The log."),
                _argument("other", "file", "Another build's log.", required=False),
            ),
        ),
        Tool(
            verb="repair",
            told="The smallest set of nodes to keep in FP32 that meets a budget, as a model.",
            parameters=(
                _MODEL,
                _INPUTS,
                _PREPROCESS,
                _SAMPLES,
                _option("low", "text", "The low formats: f16, bf16, f8e4m3 ..."),
                _option("candidate", "target", f"What it is for: {_TARGET}."),
                _BUDGETS,
                _option("output", "file", "The repaired model to write (.onnx).", required=True),
            ),
        ),
        Tool(
            verb="verify",
            told="Whether a repair is one: before and after on the real deployment.",
            parameters=(
                _MODEL,
                _option("before", "target", "The deployment as it was.", required=True),
                _option("after", "target", "The repaired one.", required=True),
                _INPUTS,
                _PREPROCESS,
                _SAMPLES,
                _BUDGETS,
                _option("no_timing", "switch", "Measure no latency."),
            ),
            study=True,
        ),
        Tool(
            verb="diff",
            told="What became better or worse between two studies, and since which version or setting.",
            parameters=(
                _argument("before", "file", "The folder of the earlier study."),
                _argument("after", "file", "The folder of the later one."),
            ),
        ),
        Tool(
            verb="check",
            told="Every model of a policy file, against its policy and its baseline.",
            parameters=(
                _argument("file", "checks", "A policy file with [[check]] tables; parityscope.toml.", required=False),
                _option("only", "texts", "Names of checks."),
                _option("no_causes", "switch", "Do not diagnose what fails."),
            ),
            study=True,
        ),
        Tool(
            verb="report",
            told="A study again, the answer or all of it.",
            parameters=(
                _argument("study", "file", "The folder of the study."),
                _option("whole", "switch", "Everything that was found.", option="--all"),
            ),
        ),
        Tool(
            verb="explain",
            told="The page of a check or rule by its code (RNG001 ...); without one the catalogue.",
            parameters=(_argument("code", "text", "The code.", required=False),),
        ),
        Tool(verb="doctor", told="What can run here, what is missing and how to get it."),
    )
}


def schema_of_tool(tool: Tool) -> dict[str, Any]:
    """The JSON Schema of what a tool takes."""
    properties = {
        one.name: {
            **(_TEXTS if one.kind == "texts" else _TYPES.get(one.kind, {"type": "string"})),
            "description": one.told,
        }
        for one in tool.parameters
    }
    required = [one.name for one in tool.parameters if one.required]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def words_of_call(name: str, given: Mapping[str, Any], bounds: CallBounds) -> tuple[list[str], str]:
    """The words of the command line that a call means, and the folder of its study ("" where it writes none).

    Raises:
        ParityError: there is no such tool or parameter, something has another type, or it names what it may not.
    """
    tool = TOOLS.get(name)
    if tool is None:
        raise ParityError(f"there is no tool {name!r}", fix=f"use one of: {', '.join(TOOLS)}")
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
        study = f"parityscope-{name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}-{next(_NUMBERS)}"
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
