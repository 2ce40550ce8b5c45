"""View of how it was run: command, model, inputs, policy, both sides with their versions, environment, timings."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from parityscope.report._tensors import GRADES
from parityscope.report.words import clean, count, figure, nbytes, number, percent, seconds, shape

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["running"]

_Facts = list[tuple[str, str]]


def running(document: Mapping[str, Any]) -> dict[str, Any]:
    """Everything needed to run the study again, and to doubt it."""
    tool = document.get("tool", {})
    return {
        "command": clean(document.get("command", "")),
        "tool": f"{clean(tool.get('name', 'parityscope'))} {clean(tool.get('version', ''))}".strip(),
        "schema": clean(document.get("schema", "")),
        "created": clean(document.get("created", "")),
        "model": _model(document.get("model", {})),
        "inputs": _inputs(document.get("inputs", {})),
        "policy": _policy(document.get("policy", {})),
        "budgets": [_budget(budget) for budget in (document.get("policy") or {}).get("budgets", ())],
        "sides": [_side(side, document.get(side, {})) for side in ("reference", "candidate")],
        "environment": _settings(document.get("environment", {})),
        "timings": _timings(document.get("timings", {})),
    }


def _model(model: Mapping[str, Any]) -> _Facts:
    facts = [
        ("file", clean(model.get("path", ""))),
        ("SHA-256", clean(model.get("sha256", ""))),
        ("size", nbytes(model.get("nbytes")) if model.get("nbytes") is not None else ""),
        ("nodes", count(model["nodes"]) if model.get("nodes") is not None else ""),
        ("opset", clean(model.get("opset", ""))),
        ("producer", clean(model.get("producer", ""))),
        *(("input", _value(value)) for value in model.get("inputs", ())),
        *(("output", _value(value)) for value in model.get("outputs", ())),
    ]
    return [fact for fact in facts if fact[1]]


def _value(value: Mapping[str, Any]) -> str:
    dims = "unknown rank" if value.get("shape") is None else shape(value["shape"])
    return f"{clean(value.get('name', ''))}: {clean(value.get('dtype', ''))} {dims}"


def _inputs(inputs: Mapping[str, Any]) -> _Facts:
    facts = [
        ("origin", clean(inputs.get("origin", ""))),
        ("samples", count(inputs["samples"]) if inputs.get("samples") is not None else ""),
        ("names", ", ".join(clean(name) for name in inputs.get("names", ()))),
        ("generated", "yes: these are not real data" if inputs.get("generated") else ""),
        ("SHA-256", clean(inputs.get("sha256", ""))),
    ]
    return [fact for fact in facts if fact[1]]


def _policy(policy: Mapping[str, Any]) -> _Facts:
    declared = policy.get("declared", "")
    facts = [
        ("declared arithmetic", GRADES.get(declared, clean(declared))),
        ("because", clean(policy.get("declared_reason", ""))),
    ]
    return [fact for fact in facts if fact[1]]


def _budget(budget: Mapping[str, Any]) -> dict[str, str]:
    return {
        "output": clean(budget.get("output") or "every output"),
        "metric": clean(budget.get("metric", "")),
        "limit": figure(budget.get("limit")),
        "reason": clean(budget.get("reason", "")),
    }


def _side(name: str, side: Mapping[str, Any]) -> dict[str, Any]:
    layers = side.get("executed_layers") or ()
    facts = [
        ("target", clean(side.get("target", ""))),
        ("version", f"{clean(side.get('backend', ''))} {clean(side.get('version', ''))}".strip()),
        ("precision asked for", _format(side.get("precision"))),
        ("precision executed", _format(side.get("executed"))),
        ("precision declared", _format(side.get("declared"))),
        ("time in the runtime", seconds(side["seconds"]) if side.get("seconds") is not None else ""),
        ("run-to-run spread", _noise(side.get("spread"))),
        ("of the squared error, changing from run to run", percent(side["changing"]) if side.get("changing") else ""),
        ("change caused by capturing", _noise(side.get("disturbance"))),
        ("executed layers", _by_precision(layers)),
        *_pairs(side.get("environment", {})),
    ]
    return {"name": name, "facts": [fact for fact in facts if fact[1]], "layers": [_layer(layer) for layer in layers]}


def _format(name: object) -> str:
    return GRADES.get(str(name), clean(name)) if name else ""


def _noise(value: object) -> str:
    x = number(value)
    if x is None:
        return ""
    return "none: bit for bit the same" if x == 0 else f"{figure(x)} relative L2"


def _by_precision(layers: Any) -> str:
    """For instance "254 in FP16, 12 in FP32": whether the precision asked for was honoured shows here."""
    found = Counter(_format(layer.get("precision")) or "unknown precision" for layer in layers)
    return ", ".join(f"{number_of:,} in {name}" for name, number_of in found.most_common())


def _layer(layer: Mapping[str, Any]) -> dict[str, str]:
    return {
        "name": clean(layer.get("name", "")),
        "layer_type": clean(layer.get("layer_type", "")),
        "precision": _format(layer.get("precision")),
        "kernel": clean(layer.get("kernel", "")),
        "nodes": ", ".join(clean(node) for node in layer.get("nodes", ())),
    }


def _pairs(facts: Mapping[str, Any]) -> _Facts:
    return [(clean(key), clean(value)) for key, value in sorted(facts.items())]


def _settings(facts: Mapping[str, Any]) -> _Facts:
    """Facts of the machine; the variables that are not set in one row at the end."""
    told = _pairs(facts)
    unset = [key for key, value in told if value == "not set"]
    rest = [pair for pair in told if pair[1] != "not set"]
    return [*rest, ("not set", ", ".join(unset))] if unset else rest


def _timings(timings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Stages in the order they ran, each with its part of the sum (0 to 1)."""
    spent = {stage: number(value) or 0.0 for stage, value in timings.items()}
    total = sum(spent.values()) or 1.0
    return [
        {"stage": clean(stage).replace("_", " "), "seconds": seconds(value), "part": round(value / total, 4)}
        for stage, value in spent.items()
    ]
