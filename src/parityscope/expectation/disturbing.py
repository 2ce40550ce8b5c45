"""A world that carries the noise of honest FP32 evaluation through the network.

Each result gets the error that its own node is expected to make (`variances`), `gain` times as large as it is. Divided
by `gain`, the distance of a tensor from the undisturbed network is the noise that it inherits and makes, amplified or damped
by whatever lies between: a Monte-Carlo estimate with one draw, whose elements do the averaging.

The sign of each disturbance is that of the tensor's own residue, y less y rounded to bfloat16: as good as random, and
the same wherever the network computes the same number, as real rounding errors are (a blank part of a page has the same
error in every element, and such errors add up in the next layer instead of averaging out). Elementwise operators use
the residue itself, which is bfloat16's rounding error: scaled, it is float32's.

The least of that (`least`) takes of each product what its result alone tells, y² (n + 1) / 3 of (n + 1) (2 y² + q) / 6, which
is most of it: nothing runs on squared inputs, and the noise is a share of the result, up or down by the bit behind bfloat16.

Disturbed are products and reductions, and everything computed before the first of them on its path: the single roundings
behind them are small beside what they inherit. Branches of If are entered; bodies of Loop and Scan are not.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir

from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.sites import exact_uses
from parityscope.expectation.error_model import ROUNDING
from parityscope.expectation.grades import ulps_of
from parityscope.expectation.variances import SUMMED, least_of_product, variance_of_node
from parityscope.light_dataclasses import dataclass, field, replace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from parityscope.evaluation.program import Program, ProgramStep
    from parityscope.evaluation.sessions import Sessions
    from parityscope.evaluation.worlds import Change, Input, Instead, World

_FLOAT32 = FORMATS["f32"].unit_roundoff
_RESIDUE = FORMATS["bf16"].unit_roundoff
_LARGEST = 2.0**120  # chosen: nothing that a network computes with, and far from where bfloat16 overflows


def disturbed_world(world: World, model: ir.Model, gain: float, sessions: Sessions, *, least: bool = False) -> World:
    """`world`, which changes nothing, with the noise of FP32 on its float32 results.

    Args:
        world: A plain world of `model`'s program.
        model: The graph that the program was compiled from: says what steers an operator or computes shapes, and stays exact.
        gain: How many times as large as it is the noise gets.
        sessions: Run products on squared inputs.
        least: Whether products get only the part of their noise that takes no other run.
    """
    program = world.program
    exact = {(program.sites.get(node.outputs[0]), index) for node, index in exact_uses(model) if node.outputs}
    stored: dict[str, Change] = {}
    instead: dict[str, Instead] = {}
    registers: set[Input] = set()
    reached: set[str] = set()
    for owner, step in _steps_with_programs(program):
        given = [name for body in step.bodies.values() for name in body.outputs] if step.op_type == "If" else []
        if any(name in reached for name in (*step.reads, *given)):
            reached.update(step.outputs)
        ulps = ulps_of(step.node)
        if step.bodies or (ulps is not None and (step.key in reached or step.node.domain not in {"", "ai.onnx"})):
            continue
        if ulps is not None:
            stored[step.key] = Residue(2.0 * ulps * gain * _FLOAT32 / _RESIDUE)
            continue
        if not _makes_error(step):
            continue
        noisy = _Noisy(step=step, program=owner, sessions=sessions, scale=ROUNDING * gain * _FLOAT32, least=least)
        instead[step.key], stored[step.key] = noisy.compute, noisy.add
        reached.update(step.outputs)
    for step in (each for _, each in _steps_with_programs(program)):
        registers.update((step.key, index) for index in range(len(step.inputs)) if (step.key, index) in exact)
    return replace(world, stored=stored, instead=instead, registers=frozenset(registers))


def expected_variance(
    step: ProgramStep, program: Program, inputs: Sequence[np.ndarray | None], result: np.ndarray, sessions: Sessions
) -> np.ndarray | None:
    """`variances.variance_of_node` of a step that read `inputs` and gave `result` (float32); None where it makes no error."""

    def again(others: Sequence[np.ndarray | None]) -> np.ndarray:
        squared = _step_on_squares(step, len(others))
        found: np.ndarray = sessions.run(
            squared, list(others), replace(program, constants=_steering_constants(squared, program))
        )[0]
        return found

    return variance_of_node(step.node, inputs, result, again)


@dataclass(frozen=True, slots=True)
class Residue:
    """Adds `scale` times what bfloat16 loses of each element."""

    scale: float

    def __call__(self, array: np.ndarray) -> np.ndarray:
        """A disturbed copy; masks (the lowest float32 number, minus infinity) and what is no float32 stay."""
        if array.dtype != np.float32:
            return array
        with np.errstate(over="ignore", invalid="ignore"):
            noise = np.float32(self.scale) * _bfloat16_residue(array)
        return array + np.where(np.abs(array) < _LARGEST, noise, np.float32(0))


@dataclass(slots=True, kw_only=True, eq=False)
class _Noisy:
    """A step that computes its own expected error beside its result, which what is stored of the result gets."""

    step: ProgramStep
    program: Program
    sessions: Sessions
    scale: float
    least: bool
    _noise: np.ndarray | float | None = field(default=None)

    def compute(self, inputs: Sequence[np.ndarray | None]) -> list[Any]:
        """What the step gives."""
        results = self.sessions.run(self.step, list(inputs), self.program)
        self._noise = None
        if isinstance(results[0], np.ndarray) and results[0].dtype == np.float32 and results[0].size:
            known = least_of_product(self.step.node, inputs) if self.least else None
            if known is not None:
                self._noise = math.sqrt(known) * self.scale
                return results
            with np.errstate(over="ignore", invalid="ignore"):
                found = expected_variance(self.step, self.program, inputs, results[0], self.sessions)
                self._noise = None if found is None else _noise_of(found, self.scale)
        return results

    def add(self, array: np.ndarray) -> np.ndarray:
        """The result with its noise, which is not kept: worlds outlive their passes."""
        noise, self._noise = self._noise, None
        if noise is None:
            return array
        if isinstance(noise, float):
            return _moved_by_factor(array, noise)
        with np.errstate(over="ignore", invalid="ignore"):
            return array + np.where(_bfloat16_residue(array) > 0, noise, -noise)


def _moved_by_factor(array: np.ndarray, part: float) -> np.ndarray:
    """Each float32 element moved by `part` of itself, away from zero or towards it by its first bit behind bfloat16."""
    behind = array.view(np.uint32) & np.uint32(1 << 15)
    with np.errstate(over="ignore", invalid="ignore"):
        moved: np.ndarray = array * np.where(behind, np.float32(1.0 - part), np.float32(1.0 + part))
    return moved


def _noise_of(variance: np.ndarray, scale: float) -> np.ndarray:
    """`scale` standard deviations, float32; `variance` is float64 of any shape."""
    noise = np.sqrt(variance)
    noise *= scale
    return np.asarray(noise, np.float32)


def _bfloat16_residue(array: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):  # infinities and masks have none
        found: np.ndarray = array - array.astype(ml_dtypes.bfloat16).astype(np.float32)
    return found


def _makes_error(step: ProgramStep) -> bool:
    return step.op_type in SUMMED and step.node.domain in {"", "ai.onnx"}


def _steps_with_programs(program: Program) -> Iterator[tuple[Program, ProgramStep]]:
    """The steps in order with their programs, those of an If's branches before the If."""
    for step in program.steps:
        if step.op_type == "If":
            for body in step.bodies.values():
                yield from _steps_with_programs(body)
        yield program, step


def _step_on_squares(step: ProgramStep, count: int) -> ProgramStep:
    """The step with its first `count` inputs alone, a Gemm with its alpha squared."""
    node = step.node
    if node.op_type == "Gemm":
        alpha = node.attributes["alpha"].as_float() ** 2 if "alpha" in node.attributes else 1.0
        attributes = [each for each in node.attributes.values() if each.name != "alpha"]
        node = ir.Node(node.domain, node.op_type, [], [*attributes, ir.AttrFloat32("alpha", alpha)], num_outputs=1)
    kind = onnx.NodeProto(op_type=node.op_type, input=["x"] * count, doc_string="of squares").SerializeToString()
    return replace(step, node=node, inputs=step.inputs[:count], kind=step.kind + kind)


def _steering_constants(step: ProgramStep, program: Program) -> dict[str, np.ndarray]:
    """The constants that say how to compute (axes): all others are fed, as their squares are."""
    held = (name for name in step.inputs if name in program.constants)
    return {name: program.constants[name] for name in held if program.constants[name].dtype.kind in "iub"}
