"""Inputs that can be exchanged without an error.

What goes wrong: two inputs have the same type and shape. A program that binds buffers by position, in another order
than the engine's, feeds one to the other, and no check can notice: input_ids, attention_mask and token_type_ids of a
BERT model are the well-known case (engines do not always keep the file's order).

How it shows: outputs are plausible but wrong through one program, and right through another.

How we test for it: declared types and shapes of the inputs; dimensions without a number take any size.

What it is confused with: low precision.

How to repair: bind by name (`get_tensor_name`, `set_tensor_address`), never by position.

Sources: NVIDIA TensorRT, public report on bert-base-chinese (order of three inputs, bindings by position).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.linting import Rule, RuleExample
from parityscope.linting._casts import type_of
from parityscope.linting._telling import make_finding, offer_by_hand
from parityscope.linting._walk import are_exchangeable, dims_of, format_dimensions

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.linting.records import Sheet
    from parityscope.records import Finding


def _look(sheet: Sheet) -> Iterator[Finding]:
    graph = sheet.model.graph
    groups: list[list[ir.Value]] = []
    for value in graph.inputs:
        if value.name in graph.initializers or not type_of(value):
            continue
        group = next((held for held in groups if _are_alike(held[0], value)), None)
        if group is None:
            groups.append([value])
        else:
            group.append(value)
    for group in groups:
        if len(group) > 1:
            yield _show_finding(group)


def _are_alike(one: ir.Value, other: ir.Value) -> bool:
    return type_of(one) == type_of(other) and are_exchangeable(dims_of(one), dims_of(other))


def _show_finding(group: list[ir.Value]) -> Finding:
    names = [str(value.name) for value in group]
    return make_finding(
        "information",
        f"inputs {', '.join(names)} are all {type_of(group[0])} [{format_dimensions(dims_of(group[0]))}]: fed in "
        "another order, none "
        "of them is refused",
        because="types are equal and shapes fit each other",
        details={"inputs": names, "type": type_of(group[0])},
        repairs=(
            offer_by_hand(
                "bind_by_name", f"bind by name; the file's order is {', '.join(names)}, an engine's may differ"
            ),
        ),
    )


_TWO = """<ir_version: 8, opset_import: ["" : 17]> g (int64[N,S] ids, int64[N,S] mask) => (int64[N,S] y) {
  y = Mul(ids, mask)
}"""

RULE = Rule(
    code="BND101",
    title="Inputs that can be exchanged without an error",
    look=_look,
    holds=(RuleExample(model=_TWO, role="information"),),
    holds_not=(
        RuleExample(model=_TWO.replace("int64[N,S] mask", "int64[1] mask")),
        RuleExample(model=_TWO.replace("int64[N,S] mask", "int32[N,S] mask").replace("Mul(ids, mask)", "Neg(ids)")),
    ),
)
