"""`backend[:precision][?key=value&...]` <-> Target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from parityscope.arithmetic.formats import NARROW, format_word
from parityscope.errors import ParityError
from parityscope.plugins import find_plugin
from parityscope.records import Target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.backends import Backend

RECORDED = "saved"  # the backend that runs nothing and answers only for what it has
_MOST = 1 << 15  # of anything that an option counts; chosen: no machine has more threads
_OURS = frozenset({"ort", "sim", RECORDED})  # names that the product itself writes all the time: not looked up
_SIMULATED = "sim"
_PLAIN = "ort"  # runs the model as it is
_STUDY = "study.json"  # what makes a folder a study
_NARROW = frozenset(map(format_word, NARROW))  # a format alone is simulated

# What outside backends of an older form import -> what they write now (plugins.py tells them).
FORMER: Mapping[str, str] = MappingProxyType(
    {"count_of": "import threads_of(target) for `threads`; any other number is read from target.option(NAME)"}
)

# Options that every backend takes; `open_target` acts on them.
COMMON_OPTIONS = {
    "model": "another ONNX file than the reference's (a converted or repaired model)",
    "inputs": "which of that file's inputs is which of the model's, where they are called otherwise: name:model_name,...",
    "timeout": "seconds one sample may take; the runtime then runs in a child process",
    "isolate": "on: run in a child process, so that a crash of the runtime becomes an error; off: do not",
}


def parse_target(text: str) -> Target:
    """The target that `text` writes; values are percent-decoded, options keep no order.

    Other names of a backend or a format (`tensorrt:FP16`), a format alone (simulated), and the path of a file or folder that
    a backend opens, with options behind it or not (`out.npz&map=a:b`), are understood too.

    Raises:
        ParityError: the text is not of the form `backend[:precision][?key=value&...]`.
    """
    if (understood := _target_of_path(text)) is not None:
        return understood
    path, _, behind = text.partition("&")
    if behind and "?" not in path and (understood := _target_of_path(path)) is not None:
        return parse_target(f"{format_target(understood)}&{behind}")
    head, _, query = text.partition("?")
    name, colon, precision = head.partition(":")
    fix = "write it as backend[:precision][?key=value&...], for example openvino:f16 or saved?path=outputs.npz"
    if not name or (colon and not precision):
        raise ParityError(f"{text!r} is not a target", fix=fix)
    options = {}
    for item in query.split("&") if query else []:
        key, equals, value = item.partition("=")
        if not key or not equals:
            raise ParityError(f"{item!r} in target {text!r} is not key=value", fix=fix)
        if key in options:
            raise ParityError(f"option {key!r} stands twice in target {text!r}", fix="give it once")
        options[key] = unquote(value)
    if not colon and format_word(name) in _NARROW:
        name, precision = _SIMULATED, name
    if not colon and format_word(name) == "f32":
        name, precision = _PLAIN, name
    from parityscope.backends import known_backends

    known = _backend_known_as(name)
    if "/" in name and not Path(name).exists():  # which is in no backend's name
        raise ParityError(
            f"there is no file or folder {name!r}",
            fix="give the path of what was recorded, of an ONNX file or of an engine, or a target: parityscope list backends",
        )
    if name == text and Path(text).is_dir() and _may_be_folder(text, known):
        return _target_of_path(f"{text}/") or Target(backend=known)
    if name == text and Path(text).is_file() and known not in known_backends():
        raise ParityError(
            f"{text} is a file of no kind that is compared",
            fix=f"give a recording, a model or an engine ({', '.join(_endings())}), or a target: parityscope list backends",
        )
    return Target(backend=known, precision=format_word(precision), options=tuple(sorted(options.items())))


def _endings() -> list[str]:
    """How the files end that are a candidate by themselves."""
    from parityscope.backends import known_backends

    return sorted({ending for one in known_backends().values() for ending in one.opens if ending.startswith(".")})


def _backend_known_as(name: str) -> str:
    """The backend that somebody calls `name`; `name` itself where it is one or where nobody knows it."""
    from parityscope.backends import Backend, known_backends

    small = name.lower()
    # The file of that name is all that is imported; all are where somebody calls it otherwise.
    if name in _OURS or find_plugin("parityscope.backends", "BACKEND", Backend, name) is not None:
        return name
    return next((one.name for one in known_backends().values() if small in {one.name, *one.called}), name)


def _may_be_folder(text: str, name: str) -> bool:
    """Whether a folder called `text` is meant, which the backend `name` is called too: no backend, or the one of recordings."""
    from parityscope.backends import known_backends

    found = known_backends().get(name)
    return found is None or (name != text and found.recorded)


def _target_of_path(text: str) -> Target | None:
    """The target that a path alone means: an ONNX file, an engine, a recording; None where `text` is no such path."""
    from parityscope.backends import known_backends

    if "?" in text or not any(sign in text for sign in "./"):
        return None
    path = Path(text)
    ending = "/" if path.is_dir() else path.suffix.lower()
    if (path / _STUDY).is_file():
        raise ParityError(
            f"{text.rstrip('/')} is a study, and no deployment: what it holds is not run",
            where=str(path),
            fix="give the target that it examined, or a folder of recorded outputs; parityscope diff STUDY STUDY compares two",
        )
    for one in known_backends().values():
        if ending in one.opens:
            return Target(backend=one.name, options=((one.opens[ending], text),))
    return None


def format_target(target: Target) -> str:
    """The text that `parse_target` reads back as `target`."""
    query = "&".join(f"{key}={quote(value, safe='/:,. ')}" for key, value in target.options)
    return target.backend + (f":{target.precision}" if target.precision else "") + (f"?{query}" if query else "")


def named_code(target: Target, backend: Backend) -> tuple[str, ...]:
    """What of a target is more than data: the options that name code, another machine or a file that is written.

    The backend's own name where all of it is.
    """
    if backend.plain is None:
        return (backend.name,)
    data = {*COMMON_OPTIONS, *backend.plain, *backend.files}
    return tuple(f"{key}=" for key, _ in target.options if key not in data)


def check_target(target: Target, backend: Backend) -> None:
    """Refuses precisions and options that `backend` does not have.

    Raises:
        ParityError: names what is unknown and what is known.
    """
    if target.precision and target.precision not in backend.precisions:
        raise ParityError(
            f"{backend.name} has no precision {target.precision!r}",
            fix=f"use one of: {', '.join(backend.precisions) or 'none, leave it out'}",
        )
    known = {**backend.options, **COMMON_OPTIONS}
    for key, value in target.options:
        if key not in known:
            raise ParityError(f"{backend.name} has no option {key!r}", fix=f"use one of: {', '.join(sorted(known))}")
        if not value:
            raise ParityError(f"option {key!r} has no value", fix=f"write {key}=VALUE, or leave it out")


def one_of(target: Target, name: str, allowed: tuple[str, ...], default: str) -> str:
    """The value of option `name`, one of `allowed`; `default` if it is not given.

    Raises:
        ParityError: it is another.
    """
    value = target.option(name, default)
    if value not in {*allowed, default}:
        raise ParityError(f"{name}={value!r} is not known", fix=f"use {name}={'|'.join(allowed)}")
    return value


def threads_of(target: Target) -> int:
    """The number that option `threads` gives; 0 if it is not given.

    Raises:
        ParityError: it is no whole number, or one that nothing has so many of.
    """
    value = target.option("threads", "0")
    if not (value.isascii() and value.isdigit() and len(value) <= len(str(_MOST)) and int(value) <= _MOST):
        raise ParityError(f"threads={value!r} is not a whole number up to {_MOST}", fix="write threads=2")
    return int(value)


def with_option(target: Target, key: str, value: str) -> Target:
    """`target` with one option set."""
    return replace(target, options=tuple(sorted({**dict(target.options), key: value}.items())))


def without_option(target: Target, key: str) -> Target:
    """`target` with one option left out."""
    return replace(target, options=tuple(one for one in target.options if one[0] != key))


def plain_target(target: Target) -> Target:
    """ONNX Runtime, with the custom operators that `target` has."""
    return Target(backend="ort", options=tuple(one for one in target.options if one[0] == "custom_ops"))
