"""What a verbose log says about fusion: which layers became one, which were removed, and how many were left."""

from __future__ import annotations

import re

from parityscope.logs.records import BuilderFusion

__all__ = ["layers_counted", "made_for", "parse_fusion", "removed_layer"]

_RULE = re.compile(r"(\w*Fusion): Fusing (.+?)(?: with (.+))?$")
_BARE = re.compile(r"Fusing (?:convolution weights from )?(.+?) with (?:scale )?(.+)$")
_COUNT = re.compile(r"(?:(Original): |(After .+?): )(\d{1,9}) layers")
_REMOVED = re.compile(r"(?:Removing|Eliminating) (\S.*?)$")
_REGISTERED = re.compile(r"Registering layer: (.*) for ONNX node: (.*)$")
_HELPING = re.compile(r"Registering layer: (.*) required by ONNX-TRT$")


def parse_fusion(text: str) -> BuilderFusion | None:
    """The fusion of a line such as `ConvReluFusion: Fusing a with b`; None if it is no such line."""
    found = _RULE.match(text)
    if found is not None:
        return BuilderFusion(rule=found[1], parts=tuple(part for part in (found[2], found[3]) if part))
    found = _BARE.match(text)
    if found is not None:
        rule = "ScaleFusion" if "convolution weights from" in text else "Fusion"
        return BuilderFusion(rule=rule, parts=(found[1], found[2]))
    return None


def removed_layer(text: str) -> str:
    """The layer that a line `Removing X` names; empty if it is no such line."""
    found = _REMOVED.match(text)
    return found[1] if found else ""


def layers_counted(text: str) -> tuple[str, int] | None:
    """(step, layers left) of a line such as `After vertical fusions: 29 layers`."""
    found = _COUNT.match(text)
    return ((found[1] or found[2]).lower(), int(found[3])) if found else None


def made_for(text: str) -> tuple[str, str] | None:
    """(layer, ONNX node) of a line `Registering layer: X for ONNX node: Y`; the node is "" for a helper layer."""
    found = _REGISTERED.match(text)
    if found is not None:
        return found[1], found[2]
    found = _HELPING.match(text)
    return (found[1], "") if found else None
