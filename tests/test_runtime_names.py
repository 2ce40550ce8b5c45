"""Nothing outside `backends/` decides by a runtime's name: what a runtime can do, its record says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import parityscope
from parityscope.backends import known_backends

SOURCE = Path(parityscope.__file__).parent
NAMES = frozenset(known_backends())
FIELDS = frozenset({"command", "python"})  # of documents too
# Where a name means something else than a backend.
OTHERWISE = {
    "environment.py": "names of packages, whose versions are facts",
    "arithmetic/fusion": "names of profiles",
    "installed.py": "names of packages, whose versions are facts",
    "known_faults.py": "names of packages, whose versions faults are known of",
}


def said(node: ast.AST) -> set[str]:
    """The runtimes that a constant or a literal of constants names."""
    match node:
        case ast.Constant(value=str(text)):
            return {text} & NAMES
        case ast.Set(elts=elts) | ast.Tuple(elts=elts) | ast.List(elts=elts):
            return {name for each in elts for name in said(each)}
        case ast.Call(func=ast.Name(id="frozenset" | "set" | "tuple"), args=[only]):
            return said(only)
        case _:
            return set()


def decides(node: ast.AST) -> bool:
    """Whether a node compares with, looks up or lists runtimes by name."""
    match node:
        case ast.Compare(left=left, comparators=others):
            sides = [left, *others]
            of_backend = [isinstance(side, ast.Attribute) and side.attr == "backend" for side in sides]
            return any(map(said, sides)) or (any(of_backend) and not all(of_backend))
        case ast.Dict(keys=keys):
            return any(said(key) for key in keys if key is not None) and len(keys) > 1 and not is_document(keys)
        case ast.Set():
            return bool(said(node))
        case ast.Call(func=ast.Attribute(attr="startswith" | "get"), args=[ast.Constant(value=str(text)), *_]):
            return text in NAMES - FIELDS
        case ast.Subscript(slice=ast.Constant(value=str(text))):
            return text in NAMES - FIELDS
        case ast.MatchValue(value=ast.Constant(value=str(text))):
            return text in NAMES
        case _:
            return False


def is_document(keys: list[ast.expr | None]) -> bool:
    """Whether a mapping is a document that tells what it was made by: of these words none is meant as a runtime."""
    return {name for key in keys if key is not None for name in said(key)} <= FIELDS


def deciding(text: str) -> list[int]:
    return [node.lineno for node in ast.walk(ast.parse(text)) if decides(node)]  # type: ignore[attr-defined] # all have one


@pytest.mark.parametrize(
    "text",
    [
        'target.backend == "trt"',
        'target.backend in {"ort", "sim"}',
        "target.backend != RECORDED",
        'NAMES = frozenset({"openvino"})',
        'WORDS = {"ort": "ONNX Runtime", "trt": "TensorRT"}',
        'name.startswith("ort")',
        'states["torch"]',
    ],
)
def test_a_decision_by_name_is_seen(text: str) -> None:
    assert deciding(text)


def test_what_only_names_one_decides_nothing() -> None:
    assert not deciding('Target(backend="sim"); one.backend == other.backend; {"command": line, "kind": kind}')


def test_nothing_outside_decides_by_a_runtimes_name() -> None:
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        inside = path.relative_to(SOURCE)
        if inside.parts[0] == "backends" or any(str(inside).startswith(one) for one in OTHERWISE):
            continue
        text = path.read_text("utf-8")
        if any(f'"{name}"' in text for name in NAMES) or ".backend " in text:
            found[str(inside)] = deciding(text)
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_every_runtime_is_told_of() -> None:
    for one in known_backends().values():
        assert one.words or one.title
        assert one.recorded <= (not one.reads_model)
        assert not (one.converts and not one.reads_model)
