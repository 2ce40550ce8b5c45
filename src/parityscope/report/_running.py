"""View of how it was run: command, model, inputs, policy, both sides with their versions, environment, timings."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from parityscope.report._tensors import GRADES
from parityscope.report.words import (
    as_number,
    clean,
    format_bytes,
    format_count,
    format_figure,
    format_percent,
    format_seconds,
    format_shape,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_Facts = list[tuple[str, str]]


def view_running(document: Mapping[str, Any]) -> dict[str, Any]:
    """Everything needed to run the study again, and to doubt it."""
    tool = document.get("tool", {})
    return {
        "command": clean(document.get("command", "")),
        "tool": f"{clean(tool.get('name', 'parityscope'))} {clean(tool.get('version', ''))}".strip(),
        "schema": clean(document.get("schema", "")),
        "created": clean(document.get("created", "")),
        "model": _view_model(document.get("model", {})),
        "inputs": _view_inputs(document.get("inputs", {})),
        "policy": _view_policy(document.get("policy", {})),
        "budgets": [_view_budget(budget) for budget in (document.get("policy") or {}).get("budgets", ())],
        "sides": [_view_side(side, document.get(side, {})) for side in ("reference", "candidate")],
        "environment": _view_environment(document.get("environment", {})),
        "timings": _view_timings(document.get("timings", {})),
    }


def _view_model(model: Mapping[str, Any]) -> _Facts:
    facts = [
        ("file", clean(model.get("path", ""))),
        ("SHA-256", clean(model.get("sha256", ""))),
        ("size", format_bytes(model.get("nbytes")) if model.get("nbytes") is not None else ""),
        ("nodes", format_count(model["nodes"]) if model.get("nodes") is not None else ""),
        ("opset", clean(model.get("opset", ""))),
        ("producer", clean(model.get("producer", ""))),
        *(("input", _describe_value(value)) for value in model.get("inputs", ())),
        *(("output", _describe_value(value)) for value in model.get("outputs", ())),
    ]
    return [fact for fact in facts if fact[1]]


def _describe_value(value: Mapping[str, Any]) -> str:
    dims = "unknown rank" if value.get("shape") is None else format_shape(value["shape"])
    return f"{clean(value.get('name', ''))}: {clean(value.get('dtype', ''))} {dims}"


def _view_inputs(inputs: Mapping[str, Any]) -> _Facts:
    facts = [
        ("origin", clean(inputs.get("origin", ""))),
        ("samples", format_count(inputs["samples"]) if inputs.get("samples") is not None else ""),
        ("names", ", ".join(clean(name) for name in inputs.get("names", ()))),
        ("generated", "yes: these are not real data" if inputs.get("generated") else ""),
        ("SHA-256", clean(inputs.get("sha256", ""))),
    ]
    return [fact for fact in facts if fact[1]]


def _view_policy(policy: Mapping[str, Any]) -> _Facts:
    declared = policy.get("declared", "")
    facts = [
        ("declared arithmetic", GRADES.get(declared, clean(declared))),
        ("because", clean(policy.get("declared_reason", ""))),
    ]
    return [fact for fact in facts if fact[1]]


def _view_budget(budget: Mapping[str, Any]) -> dict[str, str]:
    return {
        "output": clean(budget.get("output") or "every output"),
        "metric": clean(budget.get("metric", "")),
        "limit": format_figure(budget.get("limit")),
        "reason": clean(budget.get("reason", "")),
    }


def _view_side(name: str, side: Mapping[str, Any]) -> dict[str, Any]:
    layers = side.get("executed_layers") or ()
    facts = [
        ("target", clean(side.get("target", ""))),
        ("version", f"{clean(side.get('backend', ''))} {clean(side.get('version', ''))}".strip()),
        ("precision asked for", _format_title(side.get("precision"))),
        ("precision executed", _format_title(side.get("executed"))),
        ("precision declared", _format_title(side.get("declared"))),
        ("time in the runtime", format_seconds(side["seconds"]) if side.get("seconds") is not None else ""),
        ("run-to-run spread", _format_noise(side.get("spread"))),
        (
            "of the squared error, changing from run to run",
            format_percent(side["changing"]) if side.get("changing") else "",
        ),
        ("change caused by capturing", _format_noise(side.get("disturbance"))),
        ("executed layers", _count_by_precision(layers)),
        *_sorted_facts(side.get("environment", {})),
    ]
    return {
        "name": name,
        "facts": [fact for fact in facts if fact[1]],
        "layers": [_view_layer(layer) for layer in layers],
    }


def _format_title(name: object) -> str:
    return GRADES.get(str(name), clean(name)) if name else ""


def _format_noise(value: object) -> str:
    x = as_number(value)
    if x is None:
        return ""
    return "none: bit for bit the same" if x == 0 else f"{format_figure(x)} relative L2"


def _count_by_precision(layers: Any) -> str:
    """For instance "254 in FP16, 12 in FP32": whether the precision asked for was honoured shows here."""
    found = Counter(_format_title(layer.get("precision")) or "unknown precision" for layer in layers)
    return ", ".join(f"{number_of:,} in {name}" for name, number_of in found.most_common())


def _view_layer(layer: Mapping[str, Any]) -> dict[str, str]:
    return {
        "name": clean(layer.get("name", "")),
        "layer_type": clean(layer.get("layer_type", "")),
        "precision": _format_title(layer.get("precision")),
        "kernel": clean(layer.get("kernel", "")),
        "nodes": ", ".join(clean(node) for node in layer.get("nodes", ())),
    }


def _sorted_facts(facts: Mapping[str, Any]) -> _Facts:
    return [(clean(key), clean(value)) for key, value in sorted(facts.items())]


def _view_environment(facts: Mapping[str, Any]) -> _Facts:
    """Facts of the machine; the variables that are not set in one row at the end."""
    told = _sorted_facts(facts)
    unset = [key for key, value in told if value == "not set"]
    rest = [pair for pair in told if pair[1] != "not set"]
    return [*rest, ("not set", ", ".join(unset))] if unset else rest


def _view_timings(timings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Stages in the order they ran, each with its part of the sum (0 to 1)."""
    spent = {stage: as_number(value) or 0.0 for stage, value in timings.items()}
    total = sum(spent.values()) or 1.0
    return [
        {"stage": clean(stage).replace("_", " "), "seconds": format_seconds(value), "part": round(value / total, 4)}
        for stage, value in spent.items()
    ]
