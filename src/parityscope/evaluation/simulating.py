"""A precision as a world: what `arithmetic.simulation` arranges for a graph, as roundings of what passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.formats import FORMATS
from parityscope.case.graph import constant_value
from parityscope.evaluation.evaluating import run_world
from parityscope.evaluation.machine import usable_cores
from parityscope.evaluation.program import compile_program, keys_of
from parityscope.evaluation.reordering import reordered_world
from parityscope.evaluation.rounding import FloatRounding
from parityscope.evaluation.sessions import Sessions
from parityscope.evaluation.worlds import World

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from parityscope.arithmetic.formats import Format
    from parityscope.arithmetic.rounding import Overflow
    from parityscope.arithmetic.simulation import Arrangement
    from parityscope.evaluation.program import Program
    from parityscope.evaluation.worlds import Change, Input


def simulated_world(name: str, found: Arrangement, program: Program | None = None) -> World:
    """The world that computes as `found` says; its program is that of `found.model`, compiled if it is not given."""
    program = compile_program(found.model) if program is None else program
    plan = found.plan
    stored: dict[str, Change] = {}
    for value, number_format in plan.storage.items():
        site = program.sites.get(value)
        constant = constant_value(value) is not None
        if site is not None and (constant or value not in found.settled):
            stored[site] = rounding_of(number_format, found.overflow, constant=constant)
    keys = keys_of(program)
    registers: set[Input] = set()
    for node, index in (*plan.exact, *plan.inner):
        if node in keys and index < len(node.inputs):
            registers.add((keys[node], index))
    taken: dict[Input, Change] = {}
    for (node, index), number_format in plan.operands.items():
        operand = node.inputs[index]
        constant = operand is not None and constant_value(operand) is not None
        taken[keys[node], index] = rounding_of(number_format, found.overflow, constant=constant)
    taken.update(((keys[node], index), quantizer) for (node, index), quantizer in found.quantizers.items())
    return World(
        name=name,
        program=program,
        stored=stored,
        taken=taken,
        registers=frozenset(registers),
        constants={(keys[node], index): array for (node, index), array in plan.constants.items()},
    )


def open_simulation(
    found: Arrangement, outputs: Sequence[str] | None = None, *, threads: int = 0, order: int | None = None
) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """A function from inputs to the values `outputs` (None: the graph's) that computes as `found` says.

    `order`, given, is the seed of another order of the sums of products with weights.
    """
    world = simulated_world("simulated", found)
    if order is not None:
        world = reordered_world(world, np.random.default_rng(order))
    sessions = Sessions(threads=threads or usable_cores())
    wanted = world.program.outputs if outputs is None else outputs
    return lambda arrays: run_world(world, arrays, wanted, sessions)


def rounding_of(number_format: Format, overflow: Overflow, *, constant: bool) -> FloatRounding:
    """Constants overflow as they are asked to; of tensors only those in formats that usually saturate."""
    return FloatRounding(
        number_format.name, overflow if constant or FORMATS[number_format.name].saturating else "infinity"
    )
