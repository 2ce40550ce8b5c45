"""A pipeline file -> Pipeline: stages, what runs each on both sides, and how outputs become the next stage's inputs.

    inputs = "pages/"                        # DATA of the pipeline, as --inputs takes it, for the first stage's model
    preprocess = "load.py:page"              # optional, for a folder of images; stacked = true for a stacked .npz

    [[stage]]
    name = "detect"
    model = "det.onnx"
    candidate = "openvino:f16"               # reference = "ort" unless said otherwise

    [[stage]]
    name = "read"
    model = "rec.onnx"
    candidate = "openvino:f16"
    glue = "ocr.py:lines"                    # (outputs by stage, the sample's inputs) -> inputs, or a list of them
    candidate_glue = "deployed.py:lines"     # optional: the deployment's own, where it has one

Without glue, `feeds = { ids = "data.ids", hidden = "encode.last" }` says where each input comes from; left out, inputs come by
exact name from the outputs of the stage before, else from the data. Paths are relative to the file.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from parityscope.backends.targets import parse_target
from parityscope.case.formats.loader import is_function
from parityscope.case.policy_file import check_keys, read_text
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, field
from parityscope.plain_documents import read_toml_file

if TYPE_CHECKING:
    from collections.abc import Mapping

DATA = "data"  # what a feed calls the pipeline's own inputs
_KEYS = ("inputs", "preprocess", "stacked", "stage")
_STAGE_KEYS = ("name", "model", "reference", "candidate", "glue", "candidate_glue", "feeds", "declared", "policy")
_EXAMPLE = "see docs/pipelines.md for an example"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One model of a chain. `feeds` maps its inputs to (stage or "data", tensor); `glue` are file.py:function, "" for none."""

    name: str
    model: Path
    reference: str
    candidate: str
    glue: str = ""
    candidate_glue: str = ""
    feeds: Mapping[str, tuple[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    declared: str = ""
    policy: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The stages in their order, and the DATA of the first."""

    path: Path
    inputs: str
    preprocess: str
    stacked: bool
    stages: tuple[Stage, ...]


def read_pipeline(path: Path) -> Pipeline:
    """Reads a pipeline file.

    Raises:
        ParityError: it cannot be read, or says something that has no meaning here.
    """
    held = read_toml_file(path, "the pipeline")
    check_keys(held, _KEYS, str(path))
    said = {key: read_text(held, key, str(path), fix=_EXAMPLE) for key in ("inputs", "preprocess")}
    entries = held.get("stage", [])
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise ParityError("it names no stage", where=str(path), fix=f"write a [[stage]] for every model; {_EXAMPLE}")
    stages: list[Stage] = []
    for entry in entries:
        stages.append(_read_stage(entry, path, [one.name for one in stages]))
    return Pipeline(
        path=path,
        inputs=locate_path(said["inputs"], path),
        preprocess=locate_path(said["preprocess"], path),
        stacked=read_flag(held, "stacked", str(path)),
        stages=tuple(stages),
    )


def _read_stage(entry: Mapping[str, Any], path: Path, before: list[str]) -> Stage:
    where = f"{path}, stage {entry.get('name') or len(before) + 1}"
    check_keys(entry, _STAGE_KEYS, where)
    said = {key: read_text(entry, key, where, fix=_EXAMPLE) for key in _STAGE_KEYS if key != "feeds"}
    name = said["name"]
    for key in ("name", "model", "candidate"):
        if not said[key]:
            raise ParityError(f"the stage has no {key}", where=where, fix=f'write {key} = "..."; {_EXAMPLE}')
    if name in before:
        raise ParityError(f"two stages are called {name!r}", where=where, fix="give each a name of its own")
    if name == DATA or "." in name or "/" in name:
        raise ParityError(f"{name!r} cannot be a stage's name here", where=where, fix="take another, without . and /")
    glues = {key: said[key] for key in ("glue", "candidate_glue")}
    for key, text in glues.items():
        if text and not is_function(text):
            raise ParityError(f"{key} is {text!r}, not file.py:function", where=where, fix=f'write {key} = "glue.py:f"')
    if glues["glue"] and entry.get("feeds"):
        raise ParityError("it has both glue and feeds", where=where, fix="keep one of them")
    if glues["candidate_glue"] and not glues["glue"]:
        raise ParityError("candidate_glue has nothing to be held against", where=where, fix="add glue, the reference's")
    feeds = entry.get("feeds", {})
    if not isinstance(feeds, dict):
        raise ParityError("feeds is no table", where=where, fix='write feeds = { x = "data.x" }')
    return Stage(
        name=name,
        model=Path(locate_path(said["model"], path)),
        reference=locate_target(said["reference"] or "ort", path),
        candidate=locate_target(said["candidate"], path),
        glue=locate_path(glues["glue"], path),
        candidate_glue=locate_path(glues["candidate_glue"], path),
        feeds={str(key): _read_feed(str(value), before, where) for key, value in feeds.items()},
        declared=said["declared"],
        policy=Path(locate_path(said["policy"], path)) if said["policy"] else None,
    )


def _read_feed(text: str, before: list[str], where: str) -> tuple[str, str]:
    stage, dot, tensor = text.partition(".")
    if not dot or stage not in {*before, DATA}:
        known = ", ".join([DATA, *before])
        raise ParityError(
            f"{text!r} names no earlier stage's tensor", where=where, fix=f"write STAGE.TENSOR; of {known}"
        )
    return stage, tensor


def locate_target(text: str, path: Path) -> str:
    """A target whose files are looked for beside the pipeline's file."""
    parse_target(text)
    head, mark, query = text.partition("?")
    items = []
    for item in query.split("&") if query else []:
        key, _, value = item.partition("=")
        named = key in {
            *("model", "path", "engine", "module", "program", "script", "custom_ops", "timing_cache", "environment")
        }
        items.append(f"{key}={locate_path(value, path)}" if named else item)
    return head + mark + "&".join(items)


def locate_path(text: str, path: Path) -> str:
    """`text` as a path beside the file, where there is one."""
    beside = path.parent / text
    file = path.parent / text.rpartition(":")[0] if is_function(text) else beside
    return str(beside) if text and not Path(text).is_absolute() and file.exists() else text


def read_flag(held: Mapping[str, Any], key: str, where: str) -> bool:
    """What a key says; false where it is not there.

    Raises:
        ParityError: it is neither true nor false.
    """
    value = held.get(key, False)
    if not isinstance(value, bool):
        raise ParityError(f"{key} = {value!r} is neither true nor false", where=where, fix=f"write {key} = true")
    return value
