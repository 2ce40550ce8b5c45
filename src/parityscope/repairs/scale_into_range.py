"""Fold a power of two into neighbouring weights, so that a tensor or a parameter returns into range.

What it changes: the weights and biases in front of the tensor are multiplied by 2^-k, and those behind it by 2^k (or
the epsilon of a normalization by 4^-k). Between them everything is 2^k times smaller. It goes through whatever commutes
with a scale: Relu, LeakyRelu, pooling, Reshape, Transpose, residual additions, bounds of Clip, squares and roots. A
LayerNormalization or a normalization that was taken apart ends the segment, because the scale cancels there. No node is
added or removed. A constant that other nodes read too is copied.

Which power: the least that leaves two bits above the largest magnitude seen. Where a weight that grows with it is still
too small for the format then (its root mean square is subnormal), the middle of the exponents that are admissible:
between that least one and the last at which every constant that shrinks, and the tensor itself, stays a normal number
and every one that grows stays in range. So activations keep as many bits above as weights do below.

Where it is not possible: the scale reaches an operator that does not commute with it (Sigmoid, Softmax), an input or an
output of the model, the body of an If or Loop, or a constant that would leave the format or vanish in it.

Why it repairs: a floating-point format loses nothing when everything is divided by a power of two, except range.

Risk: what was smaller than 2^k times the format's smallest number vanishes, now that everything is 2^k times smaller.
Intermediate tensors differ from the original's by the factor, for whoever reads them by name.

Cost: none. In FP32 the outputs are the same bit for bit, barring subnormals and kernels that choose another order of
summation for other weights.

How to undo: keep the original file; the repair only ever writes a copy.

What the finding says: details "node" (or its site), "tensor" (one of its outputs; else the first), "reaches" or "value"
(the largest magnitude of the tensor, or of the parameter), "parameter" (its name), "vanished" or "subnormal" (how many of
its elements are too small: then it is made larger), "format" (default f16), "balance" (false: the least exponent,
whatever weights stand behind), or "exponent" (the tensor becomes 2^exponent times as large, whatever else is said).

Sources: Meller, Finkelstein, Almog, Grobman, "Same, Same But Different", ICML 2019 (scale equivariance of networks);
Nagel et al., "Data-Free Quantization", ICCV 2019 (equalization across layers).

How far a tensor that overflows is scaled down: the middle of what is admissible, where weights behind it are too small.

Everything that takes part is proportional to the exponent e of the tensor: a constant or a tensor that goes with its r-th
power is 2^(r e) times as large. From the least exponent that brings the tensor into range one may go on until

* a constant that shrinks, or the tensor, is no longer a normal number of the format at its largest element;
* a constant that grows leaves the range.

A tensor that goes with the r-th power of the tensor is taken to be as large as the r-th power of it. The middle of that
interval of exponents is the geometric middle of the scales.

It is taken only where there is something to gain. Rounding a subnormal number is off by at most half of the smallest one,
u times the smallest normal number. Where the root mean square of a weight is below the smallest normal number, that is
more, relative to its typical element, than the unit roundoff u that normal numbers are rounded by.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic import format_named
from parityscope.arithmetic.graphs import set_input
from parityscope.arithmetic.standard import DEFAULT_EPSILON
from parityscope.repairs import Repair
from parityscope.repairs._editing import array_of, nodes_of
from parityscope.repairs._exponents import HEADROOM, scale_exactly, solve_scaling

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.arithmetic import Format
    from parityscope.records import Finding
    from parityscope.repairs._exponents import ExponentScaling

_MORE = 6  # exponents tried above the least: roots, cubes and squares of squares ask for multiples of 2, 3 or 4


def _apply_repair(model: ir.Model, finding: Finding) -> str | None:
    nodes = nodes_of(model, finding)
    if not nodes:
        return None
    number_format = format_named(str(finding.details.get("format", "f16")))
    node = nodes[0]
    tensor = next((value for value in node.outputs if value.name == finding.details.get("tensor")), node.outputs[0])
    for least in _candidate_exponents(node, finding, number_format):
        scaling = solve_scaling(model.graph, {tensor: least}, number_format)
        if scaling is None or not _is_repaired(node, finding, scaling, number_format):
            continue
        asked = "exponent" in finding.details or finding.details.get("balance") is False
        exponent = least if asked else _balance_exponent(least, scaling, _largest_reached(finding), number_format)
        further = solve_scaling(model.graph, {tensor: exponent}, number_format)
        # Elsewhere in the graph the scale would end in other constants, which nothing was measured of.
        if further is None or further.constants.keys() != scaling.constants.keys():
            exponent, further = least, scaling
        scaling = further
        count = write_scaling(model, scaling)
        if count:
            others = len(scaling.values) - 1
            return (
                f"{tensor.name} is 2^{exponent} times as large, and {others} tensors around it follow, by powers of two in "
                f"{count} constants; no node was added{_describe_room(finding, exponent, number_format)}"
            )
    return None


def _candidate_exponents(node: ir.Node, finding: Finding, number_format: Format) -> list[int]:
    details = finding.details
    if "exponent" in details:
        return [int(details["exponent"])]
    if details.get("vanished") or details.get("subnormal"):
        size = _parameter_size(node, finding)
        if not 0.0 < size < number_format.smallest_normal / number_format.unit_roundoff:
            return []
        # At best the elements down to a unit roundoff of the largest become normal; at least the largest does.
        goals = (number_format.smallest_normal / number_format.unit_roundoff, number_format.smallest_normal)
        most, least = (math.ceil(math.log2(goal / size)) for goal in goals)
        return list(range(most, max(least, 1) - 1, -1))
    reached = _largest_reached(finding)
    if not math.isfinite(reached) or reached <= number_format.largest:
        return []
    bare, least = (math.ceil(math.log2(reached * room / number_format.largest)) for room in (1.0, HEADROOM))
    # An epsilon that would vanish may leave no room for the headroom; then as much of it as there can be.
    return [-each for each in (*range(least, least + _MORE), *range(least - 1, bare - 1, -1))]


def _largest_reached(finding: Finding) -> float:
    return abs(float(finding.details.get("reaches", finding.details.get("value", 0.0))))


def _describe_room(finding: Finding, exponent: int, number_format: Format) -> str:
    reached = abs(float(finding.details.get("reaches", 0.0))) * 2.0**exponent
    return f"; it now reaches {reached:.4g} of {number_format.largest:g}" if reached else ""


def _parameter_size(node: ir.Node, finding: Finding) -> float:
    """The largest magnitude in the parameter that a finding blames; 0 where the node does not read it."""
    name = finding.details.get("parameter")
    arrays = [array_of(value) for value in node.inputs if value is not None and value.name == name]
    return max(
        (float(abs(array.astype("float64")).max(initial=0.0)) for array in arrays if array is not None), default=0.0
    )


def _is_repaired(node: ir.Node, finding: Finding, scaling: ExponentScaling, number_format: Format) -> bool:
    """Whether the parameter that a finding blames comes into range; true where it blames none."""
    name = finding.details.get("parameter")
    if name is None or "exponent" in finding.details:
        return True
    for position, value in enumerate(node.inputs):
        array = array_of(value)
        if value is not None and value.name == name and array is not None:
            size = _parameter_size(node, finding) * 2.0 ** scaling.constants.get((node, ("in", position)), 0)
            return number_format.smallest_normal <= size <= number_format.largest
    return False


def write_scaling(model: ir.Model, scaling: ExponentScaling) -> int:
    """Puts the scaled constants and attributes into the graph; gives their number, 0 where one would not be exact."""
    import onnx_ir as ir

    arrays, attributes = {}, {}
    for (node, (kind, position)), exponent in scaling.constants.items():
        if kind == "attr":
            value = node.attributes.get_float(str(position), DEFAULT_EPSILON) * 2.0**exponent
            if abs(value) < _FP32_SMALLEST:
                return 0
            attributes[node, str(position)] = value
            continue
        array = array_of(node.inputs[int(position)])
        changed = None if array is None else scale_exactly(array, exponent)
        if changed is None:
            return 0
        arrays[node, int(position)] = changed
    for (node, name), value in attributes.items():
        node.attributes[name] = ir.AttrFloat32(name, value)
    for (node, index), array in arrays.items():
        old = node.inputs[index]
        set_input(model, node, index, array, f"{'' if old is None else old.name}::scaled")
    return len(arrays) + len(attributes)


def _balance_exponent(least: int, scaling: ExponentScaling, reached: float, number_format: Format) -> int:
    """The exponent to scale a tensor by: `least`, or one further below it.

    `scaling` is what scaling by 2^least takes, and `reached` the largest magnitude of the tensor as it stands.
    """
    if least >= 0 or not reached or not _too_small(scaling, number_format):
        return least
    floor, top = math.log2(number_format.smallest_normal), math.log2(number_format.largest)
    powers = [exponent / least for exponent in scaling.values.values() if exponent < 0]
    further = [math.log2(reached) + least - floor / power for power in powers]
    for size, exponent in _sizes_of_constants(scaling):
        now, power = math.log2(size) + exponent, exponent / least
        further.append((now - floor) / power if power > 0 else (top - now) / -power)
    # Every exponent of the segment stays an integer.
    step = -least // math.gcd(least, *scaling.values.values(), *scaling.constants.values())
    return least - step * max(0, math.floor(min(further) / 2 / step))


def _too_small(scaling: ExponentScaling, number_format: Format) -> bool:
    """Whether a typical element of a weight that grows is subnormal still."""
    for (node, (kind, position)), exponent in scaling.constants.items():
        array = array_of(node.inputs[int(position)]) if kind == "in" and exponent > 0 else None
        if array is not None and array.size:
            root_mean_square = math.sqrt(float(np.mean(array.astype(np.float64) ** 2)))
            if 0.0 < math.ldexp(root_mean_square, exponent) < number_format.smallest_normal:
                return True
    return False


def _sizes_of_constants(scaling: ExponentScaling) -> Iterator[tuple[float, int]]:
    """The largest magnitude of every constant and attribute that takes part (those that are not 0), and its exponent."""
    for (node, (kind, position)), exponent in scaling.constants.items():
        array = (
            array_of(node.inputs[int(position)])
            if kind == "in"
            else np.float64(node.attributes.get_float(str(position), DEFAULT_EPSILON))
        )
        size = 0.0 if array is None else float(np.abs(np.asarray(array, np.float64)).max(initial=0.0))
        if exponent and size:
            yield size, exponent


_FP32_SMALLEST = 2.0**-126  # IEEE 754-2019 binary32: a smaller epsilon would lose digits as an attribute
REPAIR = Repair(
    name="scale_into_range",
    title="Fold a power of two into neighbouring weights",
    risk="tensors between the changed weights are smaller by the factor: what is tiny there may vanish",
    apply=_apply_repair,
    exact=True,
)
