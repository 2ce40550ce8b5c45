"""The form of a study's document: `study.schema.json`, held against what is written and what is read, and walked to share one.

The file is a JSON Schema (draft-07) of which this module knows what the file uses: type, enum, required, properties,
additionalProperties as a schema, items, anyOf and references to its definitions. `x-shared` and `x-shared-keys` are our own
words: they say what a redacted study keeps, and what they do not name is left out.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Form = Mapping[str, Any]
    Check = Callable[[Any], None]
    # What becomes of a text, by the word that `x-shared` has for it.
    Sharing = Mapping[str, Callable[[str], str]]

_FILE = "study.schema.json"
_NOTHING = "nothing"
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
    "boolean": (bool,),
}
_WORDS = {"object": "an object", "array": "a list", "string": "text", "integer": "an integer", "null": "null"}


class _MisfitError(Exception):
    """`said` is what is wrong at the place that `path` leads to, innermost key first."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.said = said
        self.path: list[str] = []


@cache
def study_schema() -> Form:
    """The JSON Schema of a study, as the package holds it."""
    held: Form = json.loads(files("parityscope.study").joinpath(_FILE).read_text(encoding="utf-8"))
    return held


def problem_of(document: Any) -> str:
    """What of a document does not have the form of a study: the first place and what is wrong there; "" if all is right."""
    try:
        _study_check()(document)
    except _MisfitError as misfit:
        return f"{''.join(reversed(misfit.path)).removeprefix('.') or 'it'} {misfit.said}"
    return ""


def upgrade_document(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """A document as it is written today: `question` once had how far to go in a record of its own."""
    question = document.get("question")
    if not isinstance(question, dict) or not all(
        isinstance(question.get(name), dict) for name in ("asked", "settings", "files")
    ):
        return document
    asked = {**question["asked"], **question["settings"]}
    asked["candidate_inputs"] = asked.pop("own_inputs", None)
    asked["depth"] = "causes" if asked.pop("layers", True) is True else "outputs"
    files = {"candidate_inputs" if name == "own_inputs" else name: mark for name, mark in question["files"].items()}
    return {**document, "question": {"folder": question.get("folder"), "asked": asked, "files": files}}


def share_document(document: Mapping[str, Any], sharing: Sharing) -> dict[str, Any]:
    """What of a study may be given away: numbers, and of each text what `sharing` makes of it; what the schema lacks goes."""
    kept: dict[str, Any] = _shared_value(dict(document), study_schema(), sharing)
    return kept


@cache
def _study_check() -> Check:
    return _checker_of(study_schema(), {})


def _checker_of(form: Form, known: dict[str, Check]) -> Check:
    """A function that raises where a value is not of this form; `known` are those of definitions that were made already."""
    if "$ref" in form:
        return _check_reference(str(form["$ref"]), known)
    if "anyOf" in form:
        return _check_any([_checker_of(one, known) for one in form["anyOf"]], form["anyOf"])
    if "enum" in form:
        return _one_of(tuple(form["enum"]))
    if "type" not in form:
        return lambda _: None
    kind = str(form["type"])
    inner: Check | None = None
    if kind == "object":
        inner = _check_object(form, known)
    elif kind == "array" and "items" in form:
        inner = _check_items(_checker_of(form["items"], known))
    return _check_type(kind, inner)


def _check_reference(reference: str, known: dict[str, Check]) -> Check:
    name = reference.rpartition("/")[2]
    if name not in known:
        known[name] = _checker_of(_definition_of(reference), known)
    return known[name]


def _definition_of(reference: str) -> Form:
    held: Form = study_schema()["definitions"][reference.rpartition("/")[2]]
    return held


def _check_type(kind: str, inner: Check | None) -> Check:
    types, number = _TYPES[kind], kind in {"integer", "number"}

    def check(value: Any) -> None:
        if not isinstance(value, types) or (number and value is True) or (number and value is False):
            raise _MisfitError(f"is {_words_of(value)}, not {_words_wanted(kind)}")
        if inner is not None:
            inner(value)

    return check


def _check_object(form: Form, known: dict[str, Check]) -> Check:
    inside = {name: _checker_of(held, known) for name, held in form.get("properties", {}).items()}
    further = _checker_of(form["additionalProperties"], known) if "additionalProperties" in form else None
    required = tuple(form.get("required", ()))

    def check(value: dict[str, Any]) -> None:
        for name in required:
            if name not in value:
                raise _MisfitError(f"has no {name}")
        for name, held in value.items():
            one = inside.get(name, further)
            if one is not None:
                _check_inside(one, held, f".{name}")

    return check


def _check_items(one: Check) -> Check:
    def check(value: list[Any]) -> None:
        for place, held in enumerate(value):
            try:
                one(held)
            except _MisfitError as misfit:
                misfit.path.append(f"[{place}]")
                raise

    return check


def _check_inside(one: Check, held: Any, key: str) -> None:
    try:
        one(held)
    except _MisfitError as misfit:
        misfit.path.append(key)
        raise


def _one_of(values: tuple[Any, ...]) -> Check:
    def check(value: Any) -> None:
        if value not in values:
            raise _MisfitError(f"is {_words_of(value)}, not one of {', '.join(map(str, values))}")

    return check


def _check_any(checks: list[Check], forms: list[Form]) -> Check:
    nullable = any(form.get("type") == "null" for form in forms)
    others = [check for check, form in zip(checks, forms, strict=True) if form.get("type") != "null"]
    wanted = " or ".join(_words_wanted(str(form["type"])) for form in forms if "type" in form)

    def check(value: Any) -> None:
        if value is None and nullable:
            return None
        if len(others) == 1:  # what is wrong inside is said with its place
            return others[0](value)
        for one in others:
            try:
                return one(value)
            except _MisfitError:
                continue
        raise _MisfitError(f"is {_words_of(value)}, not {wanted}")

    return check


def _words_wanted(kind: str) -> str:
    return _WORDS.get(kind, f"a {kind}")


def _words_of(value: Any) -> str:
    if isinstance(value, str):
        return f"{value[:40]!r}"
    if value is None or isinstance(value, bool | int | float):
        return json.dumps(value)
    return "a list" if isinstance(value, list) else "an object"


def _shared_value(value: Any, form: Form, sharing: Sharing) -> Any:
    how = form.get("x-shared", "")
    if how == _NOTHING:
        return type(value)()
    if "$ref" in form:
        return _shared_value(value, _definition_of(str(form["$ref"])), sharing)
    if "anyOf" in form:
        return _shared_value(value, _fitting_form(value, form["anyOf"]), sharing)
    if isinstance(value, str):
        return sharing[how](value) if how in sharing else value if value in form.get("enum", ()) else ""
    if isinstance(value, list):
        return [_shared_value(one, form.get("items", form), sharing) for one in value]
    if isinstance(value, dict):
        return _shared_object(value, form, sharing)
    return value


def _shared_object(value: dict[str, Any], form: Form, sharing: Sharing) -> dict[str, Any]:
    if "type" not in form:  # of any form: the word for its texts holds for all that is inside
        return {name: _shared_value(held, form, sharing) for name, held in value.items()}
    inside, further = form.get("properties", {}), form.get("additionalProperties")
    kept = {name: _shared_value(held, inside[name], sharing) for name, held in value.items() if name in inside}
    if further is not None and "x-shared-keys" in form:
        kept |= {name: _shared_value(held, further, sharing) for name, held in value.items() if name not in inside}
    return kept


def _fitting_form(value: Any, forms: list[Form]) -> Form:
    """The first of the forms that the value has; the last if none."""
    for form in forms[:-1]:
        try:
            _checker_of(form, {})(value)
        except _MisfitError:
            continue
        return form
    return forms[-1]
