"""What edits of one site do to the outputs, to first order, without running them: from moments of the adjoints.

An elementwise change g of an array x with the adjoints a responds with the sum of a g(x). For a g that is straight between
nodes e that is the sum of W g(e), where W holds, of each node, the adjoints of the elements near it, each shared between the two
nodes around it: one pass over the array, and then any number of functions and bounds for nothing. A constant's own adjoints
(the products of what it meets with those of the result) do the same for every change of it; their products with the constant
itself answer for all exchanges of two indices at once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.hypotheses.from_outputs.spending import GATHER_S
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.evaluation.program import ProgramStep
    from parityscope.hypotheses.edits import StretchEdit
    from parityscope.hypotheses.from_outputs.sites import EditSite

_LOOKED_AT = 16384  # elements whose quantiles the nodes are; what they cost is what as many take to be gathered
_POINTS = 4096  # of a range, by which the node before a value is found
_NODES = 256  # between which an elementwise change is taken to be straight; chosen
_MOST_GATHERED = 1 << 20  # elements of what is picked from; chosen, as the adjoints of all of it are written down
_MOST_EXCHANGED = 256  # indices of an axis of which all pairs are looked at; chosen


@dataclass(slots=True, kw_only=True, eq=False)
class Slopes:
    """A site's array on one sample with its adjoints: float32, (elements, directions); `constants` are those of its constants.

    Adjoints of constants are by name: (elements, directions).
    """

    site: EditSite
    sample: int
    adjoint: np.ndarray
    constants: Mapping[str, np.ndarray]
    _hats: dict[str, tuple[np.ndarray, np.ndarray] | None] = field(default_factory=dict)
    _whole: np.ndarray | None = None

    def of(self, edit: StretchEdit) -> np.ndarray | None:
        """The products of an edit's change with the adjoints, float64, (directions,); None where it has to be run."""
        if edit.pointwise is not None:
            return self._pointwise(*edit.pointwise)
        if edit.before is None or not self.constants:
            return None
        changed = self.site.stretch.changed_constants(edit)
        if not changed or not changed.keys() <= self.constants.keys():
            return None
        row = np.zeros(self.adjoint.shape[1])
        for name, array in changed.items():
            known = self.site.stretch.context.constants[name]
            if array.shape != known.shape:
                return None
            change = (array.astype(np.float32) - known).ravel()
            row += change @ self.constants[name]
        return row

    def _pointwise(self, source: str, function: object) -> np.ndarray | None:
        """`function` of a tensor (the result itself where it has no name) in the place of the result."""
        array = self.site.result_on(self.sample) if not source else self.site.stretch.value(self.sample, source)
        if array is None or array.size != self.adjoint.shape[0] or array.dtype != np.float32:
            return None
        if source not in self._hats:
            self.site.reference.meter.charge(GATHER_S * (array.size + _LOOKED_AT))
            self._hats[source] = _hat_weights(array.ravel(), self.adjoint)
        held = self._hats[source]
        if held is None:
            return None
        nodes, weights = held
        values = np.asarray(function(nodes), np.float64)  # type: ignore[operator]
        if not source:
            return np.asarray((values - nodes) @ weights)
        if self._whole is None:
            self._whole = self.site.result_on(self.sample).ravel() @ self.adjoint
        return np.asarray(values @ weights - self._whole)


def _hat_weights(array: np.ndarray, adjoint: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Nodes, float64 (nodes,), and what each weighs, float64 (nodes, directions); None of an array that is not finite."""
    from parityscope.hypotheses.from_outputs._gathering import share_between_nodes

    part = array[:: max(1, array.size // _LOOKED_AT)]
    low, high = float(array.min()), float(array.max())
    if not math.isfinite(high - low):
        return None
    inner = np.quantile(part, np.linspace(0, 1, _NODES - 2))
    nodes = np.unique(np.concatenate([inner, [low, high, min(max(0.0, low), high)]]).astype(np.float64))
    if nodes.size < 2:
        return nodes, adjoint.sum(0, dtype=np.float64)[None]
    first = np.clip(np.searchsorted(nodes, np.linspace(low, high, _POINTS), "right") - 2, 0, nodes.size - 2)
    weights = np.zeros((nodes.size, adjoint.shape[1]))
    share_between_nodes(np.ascontiguousarray(array), np.ascontiguousarray(adjoint), nodes, first, weights)
    return nodes, weights


def effects_of_exchanges(array: np.ndarray, adjoint: np.ndarray, axis: int) -> np.ndarray | None:
    """What exchanging each two indices of an axis does: float64, (length, length, directions); None where there are too many.

    `array` has any shape, `adjoint` is (elements, directions).
    """
    length = array.shape[axis]
    if not 2 < length <= _MOST_EXCHANGED:
        return None
    rows = np.ascontiguousarray(np.moveaxis(array, axis, 0)).reshape(length, -1)
    slopes = np.moveaxis(adjoint.reshape(*array.shape, -1), axis, 0).reshape(length, rows.shape[1], -1)
    table = np.stack([slopes[..., one] @ rows.T for one in range(slopes.shape[-1])], -1).astype(np.float64)
    own = np.einsum("iid->id", table)
    return np.asarray(table + table.swapaxes(0, 1) - own[:, None] - own[None])


def constant_adjoints(
    step: ProgramStep,
    inputs: Sequence[np.ndarray | None],
    result: np.ndarray,
    adjoint: np.ndarray,
    wanted: Sequence[int],
) -> dict[int, np.ndarray]:
    """The adjoints of a step's constants, by input: (elements, directions); nothing where there is no rule for it.

    `result` is what it gave, `adjoint` is (elements of the result, directions), float32.
    """
    rule = _RULES.get(step.op_type)
    arrays = [inputs[index] for index in range(len(inputs))]
    if rule is None or any(
        array is not None and array.dtype.kind == "f" and array.dtype != np.float32 for array in arrays
    ):
        return {}
    shaped = adjoint.reshape(*result.shape, -1)
    found: dict[int, np.ndarray] = {}
    for index in wanted:
        array = inputs[index]
        made = None if array is None else rule(step, arrays, shaped, index)
        if array is not None and made is not None:
            found[index] = np.ascontiguousarray(made.reshape(array.size, -1))
    return found


def _sum_broadcast(table: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Sums over what broadcasting repeated: (shape of the result, directions) to (shape, directions)."""
    rank = table.ndim - 1
    full = (*(1,) * (rank - len(shape)), *shape)
    over = tuple(axis for axis in range(rank) if full[axis] == 1 and table.shape[axis] > 1)
    return table.sum(over, keepdims=True) if over else table


def _slopes_of_elementwise(
    step: ProgramStep, arrays: Sequence[np.ndarray | None], adjoint: np.ndarray, index: int
) -> np.ndarray | None:
    mine, other = arrays[index], arrays[1 - index]
    if mine is None or other is None:
        return None
    kind = step.op_type
    if kind == "Mul":
        adjoint = adjoint * other[..., None]
    elif kind == "Sub" and index:
        adjoint = -adjoint
    elif kind == "Div":
        adjoint = adjoint * (-other / mine**2 if index else 1 / other)[..., None]
    return _sum_broadcast(adjoint, mine.shape)


def _slopes_of_product(
    _: ProgramStep, arrays: Sequence[np.ndarray | None], adjoint: np.ndarray, index: int
) -> np.ndarray | None:
    data, held = arrays[0], arrays[1]
    if index != 1 or data is None or held is None or held.ndim != 2 or data.ndim < 2:
        return None
    flat = data.reshape(-1, data.shape[-1])
    return np.asarray(flat.T @ adjoint.reshape(flat.shape[0], -1))


def _slopes_of_gemm(
    step: ProgramStep, arrays: Sequence[np.ndarray | None], adjoint: np.ndarray, index: int
) -> np.ndarray | None:
    data, held = arrays[0], arrays[index]
    if data is None or held is None or index == 0:
        return None
    if index == 2:
        return _sum_broadcast(adjoint * np.float32(step.node.attributes.get_float("beta", 1.0)), held.shape)
    turned = data if step.node.attributes.get_int("transA", 0) else data.T
    found = turned @ adjoint.reshape(adjoint.shape[0], -1) * np.float32(step.node.attributes.get_float("alpha", 1.0))
    shaped = found.reshape(turned.shape[0], adjoint.shape[1], -1)
    return np.asarray(shaped.swapaxes(0, 1) if step.node.attributes.get_int("transB", 0) else shaped)


def _slopes_of_normalization(
    step: ProgramStep, arrays: Sequence[np.ndarray | None], adjoint: np.ndarray, index: int
) -> np.ndarray | None:
    data, held = arrays[0], arrays[index]
    if data is None or held is None or index == 0:
        return None
    if step.op_type == "LayerNormalization":
        first = step.node.attributes.get_int("axis", -1) % data.ndim
        over = tuple(range(first, data.ndim))
        mean, spread = data.mean(over, keepdims=True), data.var(over, keepdims=True)
        scaled = (data - mean) / np.sqrt(spread + step.node.attributes.get_float("epsilon", 1e-5))
        table = adjoint * scaled.astype(np.float32)[..., None] if index == 1 else adjoint
        return np.asarray(table.sum(tuple(range(first))))
    _, scale, _, mean, spread = (arrays[place] for place in range(5))
    if scale is None or mean is None or spread is None:
        return None
    view = (-1, *(1,) * (data.ndim - 2))
    over = (0, *range(2, data.ndim))
    size = np.sqrt(spread + step.node.attributes.get_float("epsilon", 1e-5))
    centred = data - mean.reshape(view)
    if index == 2:
        return np.asarray(adjoint.sum(over))
    if index == 3:
        return np.asarray(-adjoint.sum(over) * (scale / size)[:, None])
    along = (adjoint * centred[..., None]).sum(over)
    return np.asarray(along * (1 / size if index == 1 else -0.5 * scale / size**3)[:, None])


def _slopes_of_gather(
    step: ProgramStep, arrays: Sequence[np.ndarray | None], adjoint: np.ndarray, index: int
) -> np.ndarray | None:
    data, places = arrays[0], arrays[1]
    if index or data is None or places is None or data.size > _MOST_GATHERED:
        return None
    found = np.zeros((*data.shape, adjoint.shape[-1]), np.float32)
    if step.op_type == "Gather":
        axis = step.node.attributes.get_int("axis", 0) % data.ndim
        rows = adjoint.reshape(*data.shape[:axis], places.size, *data.shape[axis + 1 :], adjoint.shape[-1])
        np.add.at(np.moveaxis(found, axis, 0), places.ravel(), np.moveaxis(rows, axis, 0))
    elif not step.node.attributes.get_int("batch_dims", 0):
        np.add.at(found, tuple(np.moveaxis(places, -1, 0)), adjoint)
    else:
        return None
    return found


def _slopes_of_convolution(
    step: ProgramStep, arrays: Sequence[np.ndarray | None], adjoint: np.ndarray, index: int
) -> np.ndarray | None:
    data, weights = arrays[0], arrays[1]
    if data is None or weights is None or index == 0:
        return None
    groups, count = step.node.attributes.get_int("group", 1), weights.ndim - 2
    if index == 2:
        return np.asarray(adjoint.sum((0, *range(2, 2 + count))))
    sizes, given = weights.shape[2:], adjoint.shape[2:-1]
    strides, dilations = (step.node.attributes.get_ints(name, [1] * count) for name in ("strides", "dilations"))
    before = _pads_before(step, data.shape[2:], given, sizes, strides, dilations)
    need = [(given[at] - 1) * strides[at] + (sizes[at] - 1) * dilations[at] + 1 for at in range(count)]
    behind = [max(0, need[at] - before[at] - data.shape[2 + at]) for at in range(count)]
    wide = np.pad(data, [(0, 0), (0, 0), *zip(before, behind, strict=True)])
    batch, outputs, directions, places = data.shape[0], weights.shape[0], adjoint.shape[-1], math.prod(given)
    table = adjoint.reshape(batch, groups, outputs // groups, places, directions)
    table = table.transpose(1, 0, 3, 2, 4).reshape(groups, batch * places, -1)
    found = np.empty((*weights.shape, directions), np.float32)
    for tap in np.ndindex(*sizes):
        starts = [tap[at] * dilations[at] for at in range(count)]
        cut = tuple(slice(s, s + (given[at] - 1) * strides[at] + 1, strides[at]) for at, s in enumerate(starts))
        part = wide[(slice(None), slice(None), *cut)].reshape(batch, groups, -1, places)
        met = part.transpose(1, 2, 0, 3).reshape(groups, part.shape[2], -1) @ table
        met = met.reshape(groups, part.shape[2], outputs // groups, directions).swapaxes(1, 2)
        found[(slice(None), slice(None), *tap)] = met.reshape(outputs, part.shape[2], directions)
    return found


def _pads_before(
    step: ProgramStep,
    data: Sequence[int],
    given: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[int]:
    automatic = step.node.attributes.get_string("auto_pad", "NOTSET")
    if automatic == "VALID":
        return [0] * len(data)
    if automatic == "NOTSET":
        return list(step.node.attributes.get_ints("pads", [0] * (2 * len(data)))[: len(data)])
    missing = [
        max(0, (given[at] - 1) * strides[at] + (sizes[at] - 1) * dilations[at] + 1 - data[at])
        for at in range(len(data))
    ]
    return [one // 2 if automatic == "SAME_UPPER" else one - one // 2 for one in missing]


_RULES = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), _slopes_of_elementwise),
    "MatMul": _slopes_of_product,
    "Gemm": _slopes_of_gemm,
    "Conv": _slopes_of_convolution,
    **dict.fromkeys(("Gather", "GatherND"), _slopes_of_gather),
    "BatchNormalization": _slopes_of_normalization,
    "LayerNormalization": _slopes_of_normalization,
}
