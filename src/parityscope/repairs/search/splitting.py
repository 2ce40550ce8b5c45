"""Which samples are searched on and which are held out, and which models cannot be searched.

The split is a seeded permutation, so that neighbours in a data set land on both sides. Without numbers from the user as
many samples are left for the certificate as the strongest statement in reach needs (59, else 22), and at most four are
searched on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.element_types import infer_types
from parityscope.errors import ParityError
from parityscope.operators import of_kind, with_trait
from parityscope.records import Skip
from parityscope.repairs.search.labels import labels_of
from parityscope.repairs.search.proving import LEVELS, samples_needed

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.case import Inputs
    from parityscope.repairs.search.records import RepairTask

_SEARCHED = 4  # chosen: what sensitivities are averaged over; on a text recogniser three generalized and one did not
# Where samples abound: rare sensitive ones are to be among them, and only the hardest are run every time. Chosen.
_SEARCHED_OF_MANY = 64
# What a budget is divided by while searching: with several samples, with one or two. Chosen by measurement: with 1.3
# three of four unseen inputs met the budget on the text recogniser, with 1.5 all four.
MARGINS = (1.3, 1.5)
_SEVERAL = 3
_REDUCED = ("FLOAT16", "BFLOAT16", "FLOAT8", "FLOAT4")
_QUANTIZED = (of_kind("quantization") | with_trait("quantized")) - {"DequantizeLinear"}


def split_samples(task: RepairTask) -> tuple[Inputs, Inputs]:
    """(search samples, held-out samples); the latter may be empty.

    Raises:
        ParityError: more samples are asked for than there are.
    """
    indices = np.array(task.inputs.indices)
    order = [int(index) for index in np.random.default_rng(task.seed).permutation(indices)]
    searched = task.search_samples or _default_count(len(order))
    if searched > len(order) or searched + task.held_out > len(order):
        raise ParityError(
            f"{searched} search samples and {task.held_out} held-out ones were asked for, and there are {len(order)}",
            fix="give more samples with --inputs, or smaller numbers",
        )
    rest = order[searched:]
    held = rest[: task.held_out] if task.held_out else rest
    return (
        replace(task.inputs, indices=tuple(sorted(order[:searched]))),
        replace(task.inputs, indices=tuple(sorted(held))),
    )


def margin_of(task: RepairTask, searched: int) -> float:
    """What budgets are divided by while searching."""
    return task.margin or MARGINS[0 if searched >= _SEVERAL else 1]


def check_searchable(task: RepairTask) -> tuple[Skip, ...]:
    """Refuses what cannot be searched; gives what is left out of the search.

    Raises:
        ParityError: the format is not one that can be searched, or the model already computes in a lower one.
    """
    labels = labels_of(task.low)
    if (labels.eighths or labels.second) and not task.typed:
        raise ParityError(
            f"{labels.title} has to be written into the model: no runtime converts to several formats by itself",
            fix="leave --types f32 out",
        )
    graph = task.model.graph()
    reduced = reduced_value(graph)
    if reduced:
        raise ParityError(
            f"the model already computes in reduced precision: {reduced}",
            where=str(task.model.path),
            fix="give the FP32 model it was made from; `parityscope evaluate` tells what this one costs",
        )
    quantized = sorted({node.op_type for node in graph.graph.all_nodes()} & _QUANTIZED)
    if quantized:
        return (
            Skip(
                what="integer arithmetic of the quantized operators",
                reason=f"{', '.join(quantized)} compute in integers whatever the assignment; only floats are searched",
            ),
        )
    return ()


def reduced_value(model: ir.Model) -> str:
    """The first value of `model` that is narrower than FP32, with its type; empty if there is none."""
    infer_types(model)
    for value in (*model.graph.initializers.values(), *(one for node in model.graph for one in node.outputs)):
        if value.dtype is not None and value.dtype.name.startswith(_REDUCED):
            return f"{value.name!r} is {value.dtype.name}"
    return ""


def _default_count(count: int) -> int:
    for level in LEVELS:
        if count > samples_needed(level):
            return min(_SEARCHED_OF_MANY if level == LEVELS[0] else _SEARCHED, count - samples_needed(level))
    return max(1, min(_SEARCHED, count // 2))
