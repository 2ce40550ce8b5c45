"""A repair as a readable TOML file: what is kept and why, the range repairs, the budgets and the certificate.

It can be reviewed, edited (take a `[[keep]]` out, add one) and applied again to the same model: `applied_plan` makes the
outcome's model from it without a search. The model's digest ties the two together. What was measured is there to be
read; applying uses `low`, `typed`, `[[repair]]`, `[[keep]]` and `[[fp8]]`, and for a new certificate `[[budget]]` and which
samples were searched on.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from parityscope.arithmetic.float8 import IN_FP8
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, field
from parityscope.plain_documents import read_toml_file
from parityscope.records import Budget
from parityscope.repairs.search.fp8 import scales_taken
from parityscope.repairs.search.labels import labels_of
from parityscope.repairs.search.records import KeptNode, RangeEdit
from parityscope.repairs.search.staging import stage_model
from parityscope.repairs.search.writing import write_assignment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from parityscope.case import Model
    from parityscope.repairs.search.records import RepairOutcome
    from parityscope.repairs.search.writing import WrittenRepair

SCHEMA = "parityscope-plan/2"
_END = "end"  # the last table: TOML that was cut off between two tables is TOML too, and would keep fewer nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPlan:
    """What applying needs: the digest of the model, the low format, range repairs in order, and the kept nodes.

    `scales` are those of the computed operands of the products in FP8, by node and input. `budgets` are what it was found
    for, and `searched` the samples of the data with the digest `data` that it was found on.
    """

    sha256: str
    low: str
    typed: bool
    edits: tuple[RangeEdit, ...]
    kept: tuple[KeptNode, ...]
    scales: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: MappingProxyType({}))
    budgets: tuple[Budget, ...] = ()
    searched: tuple[int, ...] = ()
    data: str = ""


def plan_text(model: Model, budgets: tuple[Budget, ...], outcome: RepairOutcome, data: str = "") -> str:
    """The plan of an outcome as TOML; `data` is the digest of the samples."""
    lines = [
        f"# {outcome.statement}",
        "# Edit [[keep]] and apply again: parityscope repair MODEL --plan THIS_FILE --inputs DATA -o FIXED.onnx",
        *_toml_table("", {"schema": SCHEMA, "low": outcome.low, "typed": outcome.typed, "verdict": outcome.verdict}),
        *_toml_table("[model]", {"name": model.path.stem, "sha256": model.sha256}),
        *_toml_table(
            "[search]",
            {
                "margin": outcome.margin,
                "data": data,
                "search_samples": list(outcome.search_samples),
                "held_out": list(outcome.held_out),
                "evaluations": outcome.evaluations,
            },
        ),
    ]
    for budget in budgets:
        held = {"output": budget.output, "metric": budget.metric, "limit": budget.limit, "reason": budget.reason}
        lines += _toml_table("[[budget]]", held)
    for edit in outcome.edits:
        held = {"repair": edit.repair, "code": edit.code, "node": edit.node, "note": edit.note}
        lines += _toml_table("[[repair]]", {**held, "details": dict(edit.details)})
    for kept in outcome.kept:
        held = {
            "node": kept.node,
            "operator": kept.op_type,
            "format": _kept_format(kept, outcome.low),
            "reason": kept.reason,
        }
        lines += _toml_table(
            "[[keep]]", held | ({} if math.isnan(kept.sensitivity) else {"sensitivity": kept.sensitivity})
        )
    for name, scales in outcome.scales.items():
        lines += _toml_table("[[fp8]]", {"node": name, "scales": dict(scales)})
    proof = outcome.certificate
    if proof is not None:
        counted = {"samples": len(proof.excess), "failures": proof.failures, "attempts": proof.attempts}
        said = {"certified": proof.certified, "share": proof.share, "confidence": proof.confidence}
        far = {"worst": proof.worst, "p95": proof.p95, "unit": "of the budget", "statement": proof.statement}
        lines += _toml_table("[certificate]", counted | said | far)
    lines += _toml_table(f"[{_END}]", {})
    return "\n".join(lines) + "\n"


def read_plan(path: Path) -> RepairPlan:
    """The plan in a file.

    Raises:
        ParityError: it is missing, no TOML, no plan, or not whole.
    """
    fix = "write one with: parityscope repair MODEL --inputs DATA --write-plan plan.toml"
    held = read_toml_file(path, "the plan")
    if held.get("schema") != SCHEMA:
        raise ParityError(f"the plan has the schema {held.get('schema')!r}, not {SCHEMA!r}", where=str(path), fix=fix)
    if _END not in held:
        raise ParityError(
            f"the plan is damaged: its last line, [{_END}], is missing",
            where=str(path),
            fix=f"{fix}; or, if you took that line out, put it back",
        )
    try:
        return RepairPlan(
            sha256=str(held["model"]["sha256"]),
            low=str(held["low"]),
            typed=bool(held.get("typed", True)),
            edits=tuple(_edit_from_plan(one) for one in held.get("repair", [])),
            kept=tuple(_kept_from_plan(one, path) for one in held.get("keep", [])),
            scales={
                str(one["node"]): {str(at): float(s) for at, s in one["scales"].items()} for one in held.get("fp8", [])
            },
            budgets=tuple(_budget_from_plan(one) for one in held.get("budget", [])),
            searched=tuple(int(index) for index in held.get("search", {}).get("search_samples", [])),
            data=str(held.get("search", {}).get("data", "")),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ParityError(f"the plan lacks or misuses {error}", where=str(path), fix=fix) from error


def applied_plan(plan: RepairPlan, model: Model, folder: Path, path: Path) -> WrittenRepair:
    """Writes the plan's model to `path`, with scratch files in `folder`.

    Raises:
        ParityError: the plan was made for another model, or names a node or repair that does not fit it.
    """
    if plan.sha256 != model.sha256:
        raise ParityError(
            f"the plan was made for a model with digest {plan.sha256[:12]}…, and this one has {model.sha256[:12]}…",
            where=str(model.path),
            fix="give the model that the plan was made for, or search again",
        )
    copy = stage_model(model, plan.edits, folder)
    names = {node.name for node in (copy.graph().graph.all_nodes() if plan.typed else copy.graph().graph)}
    products = scales_taken(plan.scales, copy.graph())
    unknown = [one.node for one in plan.kept if one.node.removesuffix(IN_FP8) not in names]
    unknown += [name for name in plan.scales if name not in products]
    if unknown:
        raise ParityError(f"the plan keeps {unknown[0]!r}, and the model has no such node", fix="mend its [[keep]]")
    labels = labels_of(plan.low)
    return write_assignment(copy, labels.storage, plan.kept, path, typed=plan.typed, products=products)


def _edit_from_plan(held: Mapping[str, Any]) -> RangeEdit:
    return RangeEdit(
        repair=str(held["repair"]),
        code=str(held["code"]),
        node=str(held["node"]),
        note=str(held.get("note", "")),
        details=dict(held.get("details", {})),
    )


def _budget_from_plan(held: Mapping[str, Any]) -> Budget:
    return Budget(
        output=str(held.get("output", "")),
        metric=str(held["metric"]),
        limit=float(held["limit"]),
        reason="as the plan says",
    )


def _kept_format(kept: KeptNode, low: str) -> str:
    """What a node is kept in: FP32, or a product that is not in FP8 in what it computes in otherwise."""
    return labels_of(low).storage if kept.node.endswith(IN_FP8) else kept.format


def _kept_from_plan(held: Mapping[str, Any], path: Path) -> KeptNode:
    fits = held.get("format", "f32") in {"f32", "bf16"}
    if not fits and not str(held["node"]).endswith(IN_FP8):
        raise ParityError(
            f"{held['node']!r} is to be kept in {held['format']!r}",
            where=str(path),
            fix='write format = "f32" or "bf16"',
        )
    return KeptNode(
        node=str(held["node"]),
        op_type=str(held.get("operator", "")),
        reason=str(held.get("reason", "the plan says so")),
        sensitivity=float(held.get("sensitivity", math.nan)),
        format=str(held.get("format", "f32")) if fits else "f32",
    )


def _toml_table(head: str, held: Mapping[str, Any]) -> list[str]:
    lines = ["", head] if head else []
    return [*lines, *(f"{key} = {_toml_value(value)}" for key, value in held.items())]


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_toml_string(key)} = {_toml_value(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(one) for one in value) + "]"
    return _toml_string(str(value))


def _toml_string(text: str) -> str:
    """A basic string of TOML 1.0: quotation marks, backslashes and control characters are escaped."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() or c == " " else _escape_character(c) for c in escaped) + '"'


def _escape_character(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
