"""What the file needs of TensorRT's versions.

What goes wrong: an operator, a type, an attribute or an opset is newer than the TensorRT that the file is for, or no TensorRT
takes it.

How it shows: the parser refuses the file, one node at a time, after the export; older versions look for a plug-in of that name.

How we test for it: every node is held against the operator matrix that onnx-tensorrt publishes with each release (8.6 to 10.1),
its types and its restrictions, and the opset against the newest that a release reads. What no such matrix has was asked of a
real parser, that of TensorRT-RTX 1.7.1, without a GPU; which of the two says something is told with it. What exists in 10.1 is
taken to exist in all newer ones.

What it is confused with: a promise. That the parser takes a file says nothing of its numbers, nor that the builder finds a kernel
for every node: `parityscope network MODEL` parses and builds it, and `parityscope predict` tells what a format does to it. Nodes
that read constants alone are folded before they are parsed, so that their types are not judged.

How to repair: export for the opset that is needed, take the TensorRT that is named, write the node with other operators, or load
a plug-in (`trt?plugins=lib.so`).

Sources: docs/operators.md of onnx-tensorrt's release branches, at the URLs in `tensorrt_operators.json`; NVIDIA's "ONNX Opset
Guide"; OnnxParser of TensorRT-RTX 1.7.1, asked.
"""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from parityscope.case.graph import constant_value
from parityscope.light_dataclasses import dataclass, field
from parityscope.linting import Rule, RuleExample
from parityscope.linting._telling import format_plural, list_names, make_finding, name_places
from parityscope.linting._walk import attribute_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from parityscope.linting.records import Place, Sheet
    from parityscope.records import Finding

    Restriction = tuple[frozenset[str], str, Callable[[Sheet, ir.Node], bool]]

_LATER = "later than 10.1"
_NEVER = "none"
_PARSER = "the parser of TensorRT-RTX 1.7.1"
# Types that came with a version; the others that a network computes in are in all of them.
_CAME = {ir.DataType.BFLOAT16: "BF16", ir.DataType.FLOAT8E4M3FN: "FP8", ir.DataType.INT4: "INT4"}
_TYPES = {
    *_CAME,
    *(ir.DataType[name] for name in ("FLOAT", "FLOAT16", "DOUBLE", "INT8", "INT32", "INT64", "UINT8", "BOOL")),
    ir.DataType.FLOAT4E2M1,
    ir.DataType.FLOAT8E8M0,
}
_READS_BYTES = frozenset({"Cast", "CastLike", "QuantizeLinear", "DequantizeLinear", "Identity", "Shape", "Size"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Matrix:
    """The releases (oldest first), what the newest documents, and of each operator the types by release that changed them."""

    versions: tuple[str, ...]
    opsets: dict[str, int]
    sources: dict[str, str]
    newest: str
    parser: frozenset[str]
    operators: dict[str, list[list[str]]]

    def since(self, operator: str, kind: str = "") -> str:
        """The first release that takes an operator, and in that type where one is given."""
        for version, types in self.operators.get(operator, []):
            if types and (not kind or kind in types.split()):
                return version
        return _LATER if operator in self.parser else _NEVER


@dataclass(slots=True)
class _Needs:
    """Per version that is needed: what needs it, in words, with the nodes."""

    told: dict[str, dict[str, list[Place]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))

    def add(self, version: str, words: str, place: Place | None = None) -> None:
        places = self.told[version][words]
        if place is not None:
            places.append(place)


@functools.cache
def read_matrix() -> _Matrix:
    """The operators that TensorRT documents, by release, as the file beside this one holds them."""
    held = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    releases, newest = held["releases"], held["newest opset"]
    return _Matrix(
        versions=tuple(one["version"] for one in releases),
        opsets={one["version"]: one["opset"] for one in releases},
        sources={one["version"]: one["source"] for one in releases},
        newest=f"{newest['version']} documents {newest['opset']}: {newest['source']}",
        parser=frozenset(held["parser"]),
        operators=held["operators"],
    )


def _look(sheet: Sheet) -> Iterator[Finding]:
    matrix, needs = read_matrix(), _Needs()
    _need_opset(sheet, matrix, needs)
    for place in sheet.places:
        if place.node.domain in {"", "ai.onnx"}:
            _need_node(sheet, place, matrix, needs)
    oldest = matrix.versions[0]
    needed = {version: words for version, words in needs.told.items() if version != oldest}
    if _NEVER in needed:
        yield _refused(needed.pop(_NEVER), matrix)
    if needed:
        yield _newest(needed, matrix)


def _refused(found: dict[str, list[Place]], matrix: _Matrix) -> Finding:
    places = [place for each in found.values() for place in each]
    return make_finding(
        "information",
        f"no TensorRT that is known here (8.6 to 10.1, RTX 1.7) takes {_sentence(found)}: "
        "without a plug-in its parser refuses the file",
        because=f"the operator matrix of onnx-tensorrt 10.1, and {_PARSER}",
        places=places,
        details={"needs": _NEVER, "why": sorted(found), "source": matrix.sources["10.1"]},
    )


def _newest(needed: dict[str, dict[str, list[Place]]], matrix: _Matrix) -> Finding:
    order = (*matrix.versions, _LATER)
    version = max(needed, key=order.index)
    places = [place for each in needed[version].values() for place in each]
    older = "; ".join(f"{one} for {_sentence(needed[one])}" for one in order[::-1] if one in needed and one != version)
    first = f"a TensorRT {version}" if version == _LATER else f"TensorRT {version} or newer"
    source = matrix.sources.get(version, _PARSER)
    return make_finding(
        "information",
        f"the file needs {first}, for {_sentence(needed[version])}" + (f" (and {older})" if older else ""),
        because=source
        if source.startswith("http")
        else f"the parser of TensorRT-RTX 1.7.1, and no matrix up to 10.1: {source}",
        places=places,
        details={"needs": version, "why": {one: sorted(words) for one, words in needed.items()}, "source": source},
    )


def _sentence(found: dict[str, list[Place]]) -> str:
    parts = [
        f"{words} ({format_plural(len(places), 'node')}, e.g. {name_places(places)})" if places else words
        for words, places in sorted(found.items())
    ]
    return list_names(parts)


def _need_opset(sheet: Sheet, matrix: _Matrix, needs: _Needs) -> None:
    enough = [version for version in matrix.versions if matrix.opsets[version] >= sheet.opset]
    known = (
        f"opset {sheet.opset}"
        if enough
        else f"opset {sheet.opset} (10.1 documents {max(matrix.opsets.values())}, {matrix.newest})"
    )
    needs.add(enough[0] if enough else _LATER, known)


def _need_node(sheet: Sheet, place: Place, matrix: _Matrix, needs: _Needs) -> None:
    node = place.node
    since = matrix.since(node.op_type)
    needs.add(since, node.op_type, place)
    if since == _NEVER:
        return
    value = node.inputs[0] if node.inputs else None
    kind = None if value is None or constant_value(value) is not None else value.dtype
    if kind is not None and kind not in _TYPES:
        needs.add(_NEVER, f"the type {kind.name}", place)
    elif kind == ir.DataType.UINT8 and node.op_type not in _READS_BYTES:
        needs.add(_NEVER, f"{node.op_type} in UINT8 (which inputs and outputs only may have)", place)
    elif kind in _CAME and since != _LATER:
        first = matrix.since(node.op_type, _CAME[kind])
        if first != _NEVER:  # what the last matrix does not list may well be in newer ones
            needs.add(first, f"{node.op_type} in {_CAME[kind]}", place)
    for since, restrictions in ((_NEVER, _RESTRICTIONS), (_LATER, _LIFTED)):
        for operators, words, breaks in restrictions:
            if node.op_type in operators and breaks(sheet, node):
                needs.add(since, f"{node.op_type} {words}", place)


def _reads_computed(position: int) -> Callable[[Sheet, ir.Node], bool]:
    def look(_sheet: Sheet, node: ir.Node) -> bool:
        value = node.inputs[position] if len(node.inputs) > position else None
        return value is not None and value.is_graph_input() and constant_value(value) is None

    return look


def _zero_point(sheet: Sheet, node: ir.Node) -> bool:
    constant = sheet.constant(node.inputs[2]) if len(node.inputs) > 2 else None
    return constant is not None and constant.few is not None and bool(constant.few.any())


def _more_outputs(_sheet: Sheet, node: ir.Node) -> bool:
    return any(value.uses() or value.is_graph_output() for value in node.outputs[1:])


_REDUCTIONS = frozenset(
    f"Reduce{name}" for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum")
)
# Operators, what of them is refused, whether a node has it: restrictions of the matrix of 10.1 that the parser of TensorRT-RTX
# 1.7.1 was seen to hold (tests/test_tensorrt_operators.py asks it), then those that it was seen to hold no more.
_RESTRICTIONS: tuple[Restriction, ...] = (
    (frozenset({"MaxPool"}), "with its second output", _more_outputs),
    (frozenset({"LayerNormalization"}), "with more than its first output", _more_outputs),
    (
        frozenset({"MaxPool", "AveragePool", "LpPool"}),
        "with dilations",
        lambda _, node: any(one != 1 for one in attribute_value(node, "dilations", ())),
    ),
    (
        frozenset({"ScatterND"}),
        "with a reduction",
        lambda _, node: attribute_value(node, "reduction", "none") != "none",
    ),
    (_REDUCTIONS, "over axes that the run decides", _reads_computed(1)),
    (frozenset({"QuantizeLinear", "DequantizeLinear"}), "with a zero point that is not 0", _zero_point),
)
_LIFTED: tuple[Restriction, ...] = (
    (frozenset({"TopK"}), "with sorted = 0", lambda _, node: attribute_value(node, "sorted", 1) == 0),
    (frozenset({"CumSum"}), "along an axis that the run decides", _reads_computed(1)),
    (frozenset({"Slice"}), "along axes that the run decides", _reads_computed(3)),
)

_UNIQUE = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[N] y) { y = Unique(x) }"""
_GELU = """<ir_version: 8, opset_import: ["" : 20]> g (float[4] x) => (float[4] y) { y = Gelu(x) }"""
_INDICES = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,1,4,4] x) => (float[1,1,2,2] y, int64[1,1,2,2] i) {
  y, i = MaxPool<kernel_shape = [2,2], strides = [2,2]>(x) }"""

RULE = Rule(
    code="EXP106",
    title="What the file needs of TensorRT's versions",
    look=_look,
    holds=(
        RuleExample(model=_UNIQUE, role="information", node="Unique#0"),
        RuleExample(model=_GELU, role="information", node="Gelu#0"),
        RuleExample(model=_INDICES, role="information", node="MaxPool#0"),
    ),
    holds_not=(
        RuleExample(model=_UNIQUE.replace("Unique", "Neg")),
        RuleExample(model=_INDICES.replace(", int64[1,1,2,2] i", "").replace("y, i", "y")),
    ),
)
