"""Inputs or outputs of another type than float32.

What goes wrong: nothing in the file. But a program that fills a float32 buffer where the model declares int64 or
float16, or reads an output as float32 that is not, gets garbage without an error message from runtimes that take
plain pointers (TensorRT, C interfaces). A double is computed in FP32 by most engines, and a float16 boundary rounds
what crosses it, whatever is computed inside.

How it shows: outputs are wrong through one's own program and right through a tool that reads the declared types.

How we test for it: the declared types of inputs and outputs, and Casts right behind inputs and before outputs.

What it is confused with: precision of the engine.

How to repair: allocate buffers of the declared types.

Sources: NVIDIA TensorRT, "Make sure input X has Int64 binding".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.linting import Rule, RuleExample
from parityscope.linting._casts import type_of
from parityscope.linting._telling import list_names, make_finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import onnx_ir as ir

    from parityscope.linting.records import Sheet
    from parityscope.records import Finding


def _look(sheet: Sheet) -> Iterator[Finding]:
    graph = sheet.model.graph
    fed = [value for value in graph.inputs if value.name not in graph.initializers]
    yield from _findings_of_side(
        "input", fed, [value for value in fed if any(_is_cast(node) for node, _ in value.uses())]
    )
    given = list(graph.outputs)
    yield from _findings_of_side("output", given, [value for value in given if _is_cast(value.producer())])


def _is_cast(node: ir.Node | None) -> bool:
    return node is not None and node.op_type == "Cast" and not node.domain


def _findings_of_side(side: str, values: list[ir.Value], cast: list[ir.Value]) -> Iterator[Finding]:
    other = {str(value.name): type_of(value) for value in values if type_of(value) not in {"", "float32"}}
    if other or cast:
        yield _show_finding(side, other, [str(value.name) for value in cast])


def _show_finding(side: str, other: dict[str, str], cast: list[str]) -> Finding:
    said = []
    if other:
        said.append(f"{_name_side(side, other)}: {list_names(f'{name} is {dtype}' for name, dtype in other.items())}")
    if cast:
        said.append(f"a Cast stands at the boundary of {list_names(cast)}, so that another type is computed in")
    return make_finding(
        "information",
        "; ".join(said),
        because="buffers are bound by the declared type",
        details={"side": side, "types": other, "casts_at": cast},
    )


def _name_side(side: str, names: Iterable[str]) -> str:
    return f"{side}s of another type than float32" if len(list(names)) > 1 else f"{side} of another type than float32"


_INTS = """<ir_version: 8, opset_import: ["" : 17]> g (int64[1,4] ids) => (float[1,4] y) {
  y = Cast <to = 1> (ids)
}"""
_FLOATS = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,4] x) => (float[1,4] y) { y = Neg(x) }"""

RULE = Rule(
    code="CST103",
    title="Inputs or outputs of another type than float32",
    look=_look,
    holds=(RuleExample(model=_INTS, role="information"), RuleExample(model=_FLOATS.replace("float[", "float16["))),
    holds_not=(RuleExample(model=_FLOATS),),
)
