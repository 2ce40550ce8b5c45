"""Another elementwise operator in a step's place, with its numbers fitted: all that the standard has, from their schemas.

An operator's numbers are its attributes of type FLOAT (HardSigmoid's alpha and beta), or inputs behind the first that may be
left out (Clip's bounds). What it computes is asked of the standard's reference implementation.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper

from parityscope.hypotheses.edits import StretchEdit
from parityscope.hypotheses.fitting import fit_numbers, round_to_nice
from parityscope.hypotheses.schemas import REAL, default_of, schema_of
from parityscope.light_dataclasses import dataclass
from parityscope.operators import with_trait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from parityscope.hypotheses.stretch import ComputedStretch

_PARTS = (0.25, 1.0, 2.5)  # of a default: where fits begin; chosen
_NO_BOUND = 1e30  # a default beyond is none
_FROM_NOTHING = (0.0, 0.5)  # where the default is nought
_BOUNDS = (0.02, 0.3, 0.7, 0.98)  # quantiles where a bound begins
_MANY = (
    8  # inputs: an operator of any number of them has no numbers beside its array; elements: of fewer nothing is fitted
)
_ELEMENTS = 2000  # that numbers are fitted to; chosen
_LOOKED_AT = 1 << 16  # elements of an array that quantiles are taken of; chosen
_WORTH = 0.5  # of the squared error that a fit must explain to be said


@dataclass(frozen=True, slots=True, kw_only=True)
class PointwiseOperator:
    """An operator of one array with numbers: their names with defaults, and whether they are inputs."""

    op_type: str
    version: int
    numbers: tuple[tuple[str, float | None], ...]
    as_inputs: bool = False

    def node(self, values: tuple[float, ...]) -> onnx.NodeProto:
        """The node, of inputs i0, i1 ..., that gives o."""
        names = [name for name, _ in self.numbers]
        if self.as_inputs:
            return helper.make_node(self.op_type, [f"i{place}" for place in range(1 + len(names))], ["o"])
        node = helper.make_node(self.op_type, ["i0"], ["o"])
        pairs = zip(names, values, strict=True)
        node.attribute.extend(helper.make_attribute(name, float(value), attr_type=REAL) for name, value in pairs)
        return node

    def of(self, values: tuple[float, ...]) -> Callable[[np.ndarray], np.ndarray]:
        """What it computes with these numbers, of any array."""
        evaluator = _evaluator_of(self, () if self.as_inputs else values)
        further = {f"i{place}": value for place, value in enumerate(values, start=1)} if self.as_inputs else {}

        def computed(array: np.ndarray) -> np.ndarray:
            with np.errstate(all="ignore"):
                given = {"i0": array} | {name: np.asarray(value, array.dtype) for name, value in further.items()}
                results: list[np.ndarray] = evaluator.run(None, given)  # type: ignore[assignment]
                return results[0]

        return computed


@functools.lru_cache(maxsize=4096)
def _evaluator_of(operator: PointwiseOperator, values: tuple[float, ...]) -> onnx.reference.ReferenceEvaluator:
    from onnx.reference import ReferenceEvaluator

    node = operator.node(values)
    given, made = ([helper.make_empty_tensor_value_info(name) for name in names] for names in (node.input, node.output))
    graph = helper.make_graph([node], "pointwise", given, made)  # of a node alone the newest version would be taken
    return ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", operator.version)]))


@functools.cache
def operators_with_numbers(version: int) -> tuple[PointwiseOperator, ...]:
    """Those of the standard at a version of its operator set."""
    found = []
    for name in sorted(with_trait("pointwise")):
        schema = schema_of(onnx.NodeProto(op_type=name), {"": version})
        if schema is None or schema.min_input != 1:
            continue
        attributes = [one for one, spec in schema.attributes.items() if int(spec.type) == REAL]
        further = [one.name for one in schema.inputs[1:] if one.type_str == schema.inputs[0].type_str]
        if attributes and len(schema.inputs) == 1:
            numbers = tuple((one, default_of(schema, one)) for one in sorted(attributes))
            found.append(PointwiseOperator(op_type=name, version=version, numbers=numbers))
        elif further and len(further) == len(schema.inputs) - 1 and schema.max_input < _MANY:
            numbers = tuple((one, None) for one in further)
            found.append(PointwiseOperator(op_type=name, version=version, numbers=numbers, as_inputs=True))
    return tuple(found)


def quantiles_of(array: np.ndarray, parts: Sequence[float]) -> list[float]:
    """Quantiles of the finite elements, of some of them where they are many; none where there are none."""
    flat = array.reshape(-1)[:: (array.size // _LOOKED_AT) | 1]  # an odd step meets every channel
    finite = flat[np.isfinite(flat)]
    return [float(one) for one in np.quantile(finite, parts)] if finite.size else []


def starts_of(operator: PointwiseOperator, results: np.ndarray) -> list[tuple[float, ...]]:
    """Where fits of its numbers begin: about the defaults, and of those without one at quantiles of what is to be given."""
    ordered = quantiles_of(results, _BOUNDS) or list(_BOUNDS)
    low, high = ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]
    sides = []
    for place, (_, default) in enumerate(operator.numbers):
        if default is None or abs(default) > _NO_BOUND:  # of inputs the lower bound comes first
            sides.append(low if (default or place - 0.5) < 0 else high)
        else:
            sides.append([default * part for part in _PARTS] if default else list(_FROM_NOTHING))
    return [tuple(one) for one in itertools.product(*sides)]


def edit_with_operator(
    operator: PointwiseOperator, values: tuple[float, ...], tensor: str, instead_of: str, place: int = 0
) -> StretchEdit:
    """The operator with these numbers, of the first input (`tensor`), in the place of a step."""
    nice = [round_to_nice(value) for value in values]
    told = tuple(value for value, _ in nice)
    said = " and ".join(f"{name} {value:.6g}" for (name, _), value in zip(operator.numbers, told, strict=True))
    computed = operator.of(told)
    alone = not operator.as_inputs
    return StretchEdit(
        words=f"{operator.op_type} with {said} (fitted) in place of {instead_of}",
        bits=6 + sum(bits for _, bits in nice),
        at=place,
        node=operator.node(told) if alone else onnx.NodeProto(op_type="Identity", input=["i0"], output=["o"]),
        before=lambda arrays: [arrays[0]],
        reads=(0,),
        after=None if alone else lambda array: computed(array).astype(array.dtype),
        behind=() if alone else ((operator.op_type, told),),
        pointwise=(tensor, computed),
        numbers={name: value for (name, _), value in zip(operator.numbers, told, strict=True)},
    )


def fitted_operator_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """Every elementwise operator of the first input, its numbers fitted to what the candidate gave."""
    source = node.input[0] if node.input else ""
    if len(stretch.steps) > 1 or not stretch.same_shape or not source:
        return
    array, found = stretch.value(0, source), stretch.found[0]
    if array is None or array.shape != found.shape or array.dtype.kind != "f":
        return
    known = stretch.replayed[0]
    chosen = stretch.fitted_on & np.isfinite(array) & np.isfinite(found) & np.isfinite(known)
    places = np.flatnonzero(chosen)[:: max(1, int(chosen.sum()) // _ELEMENTS)]
    x, y = array.ravel()[places].astype(np.float64), found.ravel()[places]
    whole = float(np.square(y - known.ravel()[places]).sum())
    if places.size < _MANY or not whole:
        return
    for operator in operators_with_numbers(stretch.context.opsets.get("", 1)):
        best: tuple[float, tuple[float, ...]] = (math.inf, ())
        for start in starts_of(operator, y):
            best = min(best, fit_numbers(lambda values, o=operator: np.asarray(y - o.of(values)(x)), start))
        if best[0] < (1 - _WORTH) * whole:
            yield edit_with_operator(operator, best[1], source, node.op_type, place)
