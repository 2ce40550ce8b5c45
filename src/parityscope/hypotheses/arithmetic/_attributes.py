"""Float attributes rounded to a storage format, as kernels do that hold alpha, beta or epsilon in the tensors' own type.

ONNX Runtime's CUDA HardSigmoid in FP16 computes with 0.166626 for an alpha of 1/6 (measured on an NVIDIA H200): that is
arithmetic, and no other slope. Defaults are rounded like given attributes.

Source: the ONNX operator specification (default values).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.rounding import round_to
from parityscope.hypotheses.arithmetic.edits import set_attribute
from parityscope.operators import STANDARD

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.hypotheses.arithmetic import Rewrite

__all__ = ["attributes_change", "attributes_rounded"]

_DEFAULTS = {one.name: one.defaults for one in STANDARD.values() if one.defaults}


def attributes_change(name: str, graph: ir.Graph) -> bool:
    """Whether a float attribute of a node is another number in the format called `name`."""
    return any(_round_attribute(value, name) != value for node in graph for value in _float_attributes(node).values())


def attributes_rounded(name: str) -> Rewrite:
    """A rewriting of a whole region that rounds all float attributes to the format called `name`, to nearest even."""

    def rewrite(model: ir.Model, _node: ir.Node, _parameter: float) -> None:
        for node in model.graph:
            for attribute, value in _float_attributes(node).items():
                set_attribute(node, attribute, _round_attribute(value, name))

    return rewrite


def _float_attributes(node: ir.Node) -> dict[str, float]:
    given = {key: each.as_float() for key, each in node.attributes.items() if each.type.name == "FLOAT"}
    known = _DEFAULTS.get(node.op_type, {}) if not node.domain else {}
    return {**{key: node.attributes.get_float(key, default) for key, default in known.items()}, **given}


def _round_attribute(value: float, name: str) -> float:
    """To the nearest number of the format; what is beyond its range stays (a bound of 3.4e38 means none)."""
    single = np.array(value, np.float32)
    near = float(round_to(single, FORMATS[name], overflow="infinity"))
    return near if np.isfinite(near) else float(single)
