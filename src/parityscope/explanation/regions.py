"""A region as a world of the evaluator: with a variant's roundings, its other accumulation, or the noise of FP32.

What a variant does to operands, parameters and stored tensors is what a world changes (`evaluation.worlds`); a product that
is added up step by step, and a node whose results get noise, are computed *instead*. So nothing has to be expressed in ONNX
but a rewriting, and nodes that do the same share a session, in all variants and regions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.graphs import Names
from parityscope.arithmetic.recurrent import take_apart
from parityscope.arithmetic.sites import EXACT_INPUTS, PRODUCTS, is_float
from parityscope.evaluation.evaluating import evaluate_worlds
from parityscope.evaluation.program import compile_program, keys_of
from parityscope.evaluation.rounding import FloatRounding
from parityscope.evaluation.worlds import World
from parityscope.hypotheses.arithmetic import Operand, Variant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import onnx_ir as ir

    from parityscope.arithmetic.recurrent import TakenApart
    from parityscope.evaluation.program import Program, ProgramStep
    from parityscope.evaluation.sessions import Sessions
    from parityscope.evaluation.worlds import Change, Instead
    from parityscope.hypotheses.arithmetic import Inside

    Arrays = Sequence[np.ndarray | None]
    Again = Callable[[Arrays], np.ndarray]  # the first result of the same node on other arrays

_FLOATS = ("float32", "float64")
_WORLD = "region"


class Noise(Protocol):
    """What a noisy evaluation adds: to what nodes read, and to what they compute."""

    def read(self, node: ir.Node, array: np.ndarray) -> np.ndarray:
        """`array`, which `node` reads, with noise."""
        ...

    def computed(self, site: str, node: ir.Node, arrays: Arrays, array: np.ndarray, again: Again | None) -> np.ndarray:
        """`array`, the value called `site` that `node` made of `arrays`, with noise; control flow does not tell of what."""
        ...


class NotAccumulatedError(Exception):
    """A product that is too large, or of another kind, to be accumulated step by step."""


def evaluate_region(
    region: ir.Model, feeds: Mapping[str, np.ndarray], sessions: Sessions, variant: Variant | None = None
) -> dict[str, np.ndarray]:
    """Every value of a region by name, once; arguments and errors as of `open_region`."""
    return open_region(region, sessions, variant)(feeds)


def open_region(
    region: ir.Model, sessions: Sessions, variant: Variant | None = None, noise: Noise | None = None
) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """A function from a region's inputs to every value of it by name, under `variant`.

    The rewriting of `variant` is done already, its output not yet rounded. Arrays have the shapes and dtypes of the region's own
    values. A noisy evaluation keeps to roundings that noise cannot move: of the region's inputs and parameters, and inside of
    recurrent operators.

    Raises:
        ParityError: ONNX Runtime refuses a node.
        NotAccumulatedError: `variant` accumulates products step by step, and one cannot be.
    """
    variant = variant or Variant(words="")
    region = _inline_functions(region)
    taken: tuple[TakenApart, ...] = ()
    if variant.inside is not None:
        region = region.clone()
        infer_types(region)
        taken = take_apart(region, Names(region), terms=variant.inside.recurrence.terms)
        region.graph.sort()
    program = compile_program(region)
    world = _round_inside(_region_world(program, variant, noise, sessions), variant.inside, taken)

    def run(feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        known = {**program.constants, **feeds}
        for moment in evaluate_worlds([world], feeds, None, sessions):
            known.update((site, moment.stored(_WORLD, site)) for site in moment.sites)
        return known

    return run


def _inline_functions(region: ir.Model) -> ir.Model:
    """The region without calls of functions."""
    called = {(domain, name) for domain, name, _ in region.functions}
    if not any((node.domain, node.op_type) in called for node in region.graph.all_nodes()):
        return region
    from onnx_ir.passes import common

    return common.InlinePass()(region.clone()).model


def _region_world(program: Program, variant: Variant, noise: Noise | None, sessions: Sessions) -> World:
    taken: dict[tuple[str, int], Change] = {}
    constants: dict[tuple[str, int], np.ndarray] = {}
    instead: dict[str, Instead] = {}
    stored: dict[str, Change] = {}
    for step in program.steps:
        for index, name in enumerate(step.inputs):
            change = _change_of_input(program, step, index, variant, noise) if name else None
            if change is not None and name in program.constants:
                constants[step.key, index] = change(program.constants[name])
            elif change is not None:
                taken[step.key, index] = change
        compute = None
        if noise is None:
            compute = _accumulate_product(step, variant)
        elif step.bodies:  # is run as the world changes it inside
            stored.update((site, _add_noise(noise, site, step)) for site in step.outputs if site)
        else:
            compute = _compute_with_noise(program, step, noise, sessions)
        if compute is not None:
            instead[step.key] = compute
        if variant.between is not None and noise is None:
            between = _change_between_nodes(step, variant)
            stored.update((site, between) for site in step.outputs if site and site not in program.outputs)
    return World(name=_WORLD, program=program, taken=taken, constants=constants, instead=instead, stored=stored)


def _change_of_input(
    program: Program, step: ProgramStep, index: int, variant: Variant, noise: Noise | None
) -> Change | None:
    """How one input of a step is taken; None where it is read as it is."""
    if index in EXACT_INPUTS.get(step.op_type, ()):
        return None
    name = step.inputs[index]
    inner = name in program.steps_of
    operand = Operand(node=step.node, index=index, constant=name in program.constants)
    roundings = [] if variant.stored is None or inner else [variant.stored]
    multiplied = PRODUCTS.get(step.op_type, ())
    if variant.operands is not None and (multiplied is None or index in multiplied) and not (inner and noise):
        roundings.append(variant.operands)
    if not roundings and noise is None:
        return None

    def taken(array: np.ndarray) -> np.ndarray:
        if array.dtype.name not in _FLOATS:
            return array
        for rounding in roundings:
            array = rounding(array, operand)
        return array if noise is None else noise.read(step.node, array)

    return taken


def _change_between_nodes(step: ProgramStep, variant: Variant) -> Change:
    operand = Operand(node=step.node, index=-1, constant=False)

    def between(array: np.ndarray) -> np.ndarray:
        if variant.between is None or array.dtype.name not in _FLOATS:
            return array
        return variant.between(array, operand)

    return between


def _accumulate_product(step: ProgramStep, variant: Variant) -> Instead | None:
    """A product added up step by step, where the variant does that."""
    accumulate = variant.accumulate
    if accumulate is None or step.op_type not in PRODUCTS:
        return None

    def instead(arrays: Arrays) -> list[np.ndarray]:
        result = accumulate(step.node, arrays)
        if result is None:
            raise NotAccumulatedError(step.op_type)
        return [result]

    return instead


def _round_inside(world: World, inside: Inside | None, taken: Sequence[TakenApart]) -> World:
    """The world with what is rounded in the steps of recurrent operators that were taken apart."""
    if inside is None:
        return world
    program, rounding = world.program, FloatRounding(inside.format)
    stored, operands = dict(world.stored), dict(world.taken)
    keys = keys_of(program)
    for each in taken:
        body = each.scan.attributes["body"].as_graph()
        if inside.recurrence.stored:
            weights = (value for value in body.initializers.values() if is_float(value))
            values = (value for kind in inside.recurrence.stored for value in each.values[kind])
            stored.update((program.sites[value], rounding) for value in (*weights, *values))
        else:
            operands.update(
                ((keys[node], index), rounding) for node in body for index in PRODUCTS.get(node.op_type) or ()
            )
    return replace(world, stored=stored, taken=operands)


def _compute_with_noise(program: Program, step: ProgramStep, noise: Noise, sessions: Sessions) -> Instead:
    def instead(arrays: Arrays) -> list[np.ndarray]:
        def again(others: Arrays) -> np.ndarray:
            found: np.ndarray = sessions.run(step, list(others), program)[0]
            return found

        results = sessions.run(step, list(arrays), program)
        return [
            _add_noise(noise, site, step, arrays, again)(array)
            for site, array in zip(step.outputs, results, strict=True)
        ]

    return instead


def _add_noise(noise: Noise, site: str, step: ProgramStep, arrays: Arrays = (), again: Again | None = None) -> Change:
    def noisy(array: np.ndarray) -> np.ndarray:
        if not isinstance(array, np.ndarray) or array.dtype.name not in _FLOATS:
            return array
        return noise.computed(site, step.node, arrays, array, again)

    return noisy
