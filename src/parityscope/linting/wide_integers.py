"""Integers beyond int32, and the use of int64.

What goes wrong: almost never anything. TensorRT before 10 and some accelerators compute in int32 and clamp larger
constants, with a warning that is often taken for the cause. Nearly always the constant is INT64_MAX in a Slice, where
it means "to the end" and clamping changes nothing. Only arithmetic on numbers beyond 2^31 (hashes, time stamps,
products of many sizes) really changes.

How it shows: the warning "Your ONNX model has been generated with INT64 weights"; and, where it matters, wrong indices
or negative numbers.

How we test for it: integer constants are read; those beyond int32 are told with the operator that reads them. In
arithmetic they contribute, anywhere else they are information.

What it is confused with: real causes. In more than a hundred reports of wrong engines, int64 was named often and was
the proven cause in none.

How to repair: nothing in a Slice; else a runtime with int64 (TensorRT 10).

Sources: ONNX operator Slice-13 (INT_MAX as an end); NVIDIA TensorRT 10.0 release notes (INT64).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.linting import Rule, RuleExample
from parityscope.linting._telling import format_plural, list_names, make_finding
from parityscope.linting._walk import computing_readers
from parityscope.operators import of_kind, with_trait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.linting.records import FileConstant, Sheet
    from parityscope.records import Finding, Role

_LOW, _HIGH = -(2**31), 2**31 - 1
_ARITHMETIC = with_trait("affine") | of_kind("comparison", "bits") | {"Mod", "Pow"}


def _look(sheet: Sheet) -> Iterator[Finding]:
    harmless: list[tuple[FileConstant, str]] = []
    for constant in sheet.constants:
        if (
            constant.dtype not in {"int64", "uint64", "uint32"}
            or _LOW <= constant.numbers.lowest <= constant.numbers.highest <= _HIGH
        ):
            continue
        ops = list(dict.fromkeys(node.op_type for node, _ in computing_readers(constant.value)))
        computing = [op for op in ops if op in _ARITHMETIC]
        if computing and not _stands_for_the_end(constant):
            yield _show_finding(sheet, [(constant, ", ".join(computing))], "contributing")
        else:
            harmless.append((constant, ", ".join(ops) or "nothing"))
    if harmless:
        yield _show_finding(sheet, harmless, "information")


def _stands_for_the_end(constant: FileConstant) -> bool:
    """Whether the numbers beyond int32 are only the ends of int64, which clamping maps to the ends of int32."""
    if constant.few is None:
        return False
    flat = constant.few.reshape(-1).astype(object)
    beyond = [abs(int(each)) for each in flat if not _LOW <= int(each) <= _HIGH]
    return all(each >= 2**63 - 2 for each in beyond)


def _show_finding(sheet: Sheet, held: list[tuple[FileConstant, str]], role: Role) -> Finding:
    constant, read_by = held[0]
    effect = (
        "a runtime that computes in int32 clamps or wraps it, and the arithmetic changes"
        if role == "contributing"
        else "clamping to int32 changes nothing there"
    )
    places = list(dict.fromkeys(sheet.place(node) for each, _ in held for node, _ in computing_readers(each.value)))
    return make_finding(
        role,
        f"{format_plural(len(held), 'integer constant')} beyond int32, e.g. {constant.name!r} with {_name_worst(constant)}, "
        f"read by {read_by}: {effect}",
        because="integer constants were read; int32 ends at 2,147,483,647",
        places=places,
        details={"parameters": list_names(each.name for each, _ in held), "count": len(held)},
    )


def _name_worst(constant: FileConstant) -> str:
    worst = int(constant.numbers.worst)
    return {2**63 - 1: "INT64_MAX", -(2**63): "INT64_MIN"}.get(worst, f"{worst:,}")


_SLICE = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[M] y) { y = Slice(x, start, end) }"""
_HASH = """<ir_version: 8, opset_import: ["" : 17]> g (int64[4] x) => (int64[4] y) { y = Mul(x, end) }"""
_START = {"start": np.array([1], np.int64)}

RULE = Rule(
    code="CST104",
    title="Integers beyond int32",
    look=_look,
    holds=(
        RuleExample(model=_SLICE, constants={**_START, "end": np.array([2**63 - 1], np.int64)}, role="information"),
        RuleExample(
            model=_HASH, constants={"end": np.array(6364136223846793005, np.int64)}, role="contributing", node="Mul#0"
        ),
    ),
    holds_not=(
        RuleExample(model=_SLICE, constants={**_START, "end": np.array([2**31 - 1], np.int64)}),
        RuleExample(model=_SLICE, constants={**_START, "end": np.array([2**63 - 1], np.int64)}, role="contributing"),
    ),
)
