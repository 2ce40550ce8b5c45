"""Explanations of the leading suspects of a localization: their regions, fed with what the candidate showed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.maxima import NAN_DEPENDENT
from parityscope.case.graph import Regions, computing_nodes, constant_value, node_name
from parityscope.errors import ParityError
from parityscope.evaluation.sessions import Sessions
from parityscope.explanation.explaining import decide_explanation
from parityscope.explanation.generating import Surroundings, budget_of_searches
from parityscope.explanation.records import Explanation, ExplanationOptions
from parityscope.explanation.weighed import Weighed, weigh_arithmetic
from parityscope.hypotheses.worker import Worker
from parityscope.localization import MOST, leading_suspects
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    import onnx_ir as ir

    from parityscope.localization import Sides
    from parityscope.records import Localization


def explain_suspects(
    sides: Sides, localization: Localization, *, declared: str = "", most: int = MOST, searches: float = 1.0
) -> dict[str, Explanation]:
    """An explanation for each of the leading suspects, by the tensor's name in the reference's graph.

    On the first sample of the reference's trace. False discoveries are controlled over the channels of all suspects
    together.

    Args:
        sides: Both sides' tensors.
        localization: What `localize` and `injection` made of them.
        declared: The format that the candidate was seen to execute, or declares: "f32", "tf32", "f16" or "bf16".
        most: So many suspects are explained at most.
        searches: The share of the usual time that searches for other functions may take.
    """
    graph = sides.model.shared_graph()
    observed = frozenset(sides.observed())
    sample = sides.reference.samples[0]
    options = ExplanationOptions(declared=declared)
    # Regions are small: a thread pool for each of a hundred sessions costs more than it gives.
    sessions = Sessions(threads=1)
    weighed: dict[str, Weighed] = {}
    found: dict[str, Explanation] = {}
    for suspect in leading_suspects(localization, most):
        tensor = suspect.site.tensor
        try:
            small = region_model(graph, tensor, observed)
            feeds = _feeds_of_region(small, sides, sample, tensor)
            if _depends_on_nan(small, feeds):
                found[tensor] = _untestable_explanation(
                    tensor, "what a maximum of NaN is differs between runtimes, and NaN comes in"
                )
                continue
            candidate = sides.candidate.get(sample, sides.pairing[tensor])
            outcome = weigh_arithmetic(small, feeds, candidate, options, sessions)
        except ParityError as error:
            outcome = _untestable_explanation(tensor, error.problem)
        if isinstance(outcome, Weighed):
            weighed[tensor] = outcome
        else:
            found[tensor] = outcome
    around = Surroundings(
        sides=sides, graph=graph, worker=Worker(), held_elsewhere=[], budget=budget_of_searches(options, searches)
    )
    decided = {
        tensor: decide_explanation(each, _chances_elsewhere(weighed, tensor), options, around)
        for tensor, each in weighed.items()
    }
    for tensor, each in weighed.items():
        verdict = decided[tensor]
        apart = _runs_apart(sides, tensor, each.scene.feeds) if verdict.status == "unexplained" else ""
        found[tensor] = _untestable_explanation(tensor, apart, verdict) if apart else verdict
    order = [suspect.site.tensor for suspect in localization.suspects]
    return {tensor: found[tensor] for tensor in order if tensor in found}


def _chances_elsewhere(weighed: Mapping[str, Weighed], tensor: str) -> np.ndarray:
    """The p-values of all other regions' channels."""
    others = [other.best.chances for name, other in weighed.items() if name != tensor]
    return np.concatenate([np.zeros(0), *others])


def region_model(model: ir.Model, tensor: str, observed: Container[str]) -> ir.Model:
    """The nodes between `tensor` and the nearest `observed` tensors above it, as a graph of their own.

    Its inputs have the names of the tensors that enter, its nodes the names that they have in the whole graph; parameters are
    shared with `model`, which is not changed.
    """
    import onnx_ir as ir

    values: dict[int, ir.Value] = {}
    entering: list[ir.Value] = []
    parameters: list[ir.Value] = []

    def taken(value: ir.Value | None) -> ir.Value | None:
        if value is None or id(value) in values:
            return None if value is None else values[id(value)]
        tensor = constant_value(value)
        made = ir.Value(name=value.name, type=value.type, shape=value.shape, const_value=tensor)
        if tensor is not None:
            made.type, made.shape = ir.TensorType(tensor.dtype), ir.Shape(tensor.shape.numpy())
        (entering if tensor is None else parameters).append(made)
        values[id(value)] = made
        return made

    nodes = []
    places = {id(node): index for index, node in enumerate(computing_nodes(model))}
    for node in Regions(model).of(tensor, observed):
        copy = ir.Node(
            node.domain,
            node.op_type,
            [taken(value) for value in node.inputs],
            list(node.attributes.values()),
            num_outputs=len(node.outputs),
            name=node_name(node, places[id(node)]),
        )
        for old, new in zip(node.outputs, copy.outputs, strict=True):
            new.name, new.type, new.shape = old.name, old.type, old.shape
            values[id(old)] = new
        nodes.append(copy)
    wanted = next(value for node in nodes for value in node.outputs if value.name == tensor)
    graph = ir.Graph(
        entering,
        [wanted],
        nodes=nodes,
        initializers=parameters,
        opset_imports=dict(model.opset_imports),
        name=f"region of {tensor}",
    )
    return ir.Model(graph, ir_version=model.ir_version or 8, functions=list(model.functions.values()))


def _feeds_of_region(small: ir.Model, sides: Sides, sample: int, tensor: str) -> dict[str, np.ndarray]:
    """The candidate's own values of what enters the region of `tensor`, of one run with it as far as there is one.

    The model's inputs are the same on both sides.
    """
    given = sides.inputs.sample(sample).arrays
    names = [str(value.name) for value in small.graph.inputs]
    return {
        name: given[name] if name in given else sides.candidate_tensor(sample, name, reader=tensor) for name in names
    }


def _depends_on_nan(small: ir.Model, feeds: Mapping[str, np.ndarray]) -> bool:
    """Whether the region takes a maximum in which the reference arithmetic may lose a NaN that the candidate has."""
    return any(node.op_type in NAN_DEPENDENT for node in small.graph) and any(
        np.isnan(array).any() for array in feeds.values() if array.dtype.kind == "f"
    )


def _runs_apart(sides: Sides, tensor: str, feeds: Mapping[str, np.ndarray]) -> str:
    """Why c and c_in may not belong together: an input that the candidate did not give back in the run of its output.

    Each part of a recording is a session of its own, and engines that time their kernels before they choose give other
    numbers in every session. Then what such a region introduced holds what was inherited up to there, once more.
    """
    apart = [name for name in feeds if name in sides.pairing and sides.apart(name, reader=tensor)]
    if not apart:
        return ""
    return (
        f"nothing explains it, but its input {apart[0]} was given back in another run than its output, and an engine "
        "may give other numbers in each: record both in one run, with more memory (--memory)"
    )


def _untestable_explanation(tensor: str, reason: str, verdict: Explanation | None = None) -> Explanation:
    """Not testable; what was found before stays to be read."""
    skip = Skip(what=f"explanation of {tensor}", reason=reason)
    if verdict is None:
        return Explanation(tensor=tensor, status="not testable", skipped=(skip,))
    return replace(verdict, status="not testable", skipped=(*verdict.skipped, skip))
