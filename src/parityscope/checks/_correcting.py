"""How what a finding says is done in a copy of the reference: inputs in another order, a parameter or a layer changed.

Edits of a graph leave the names of its tensors as they are, so that the copy can be held against the candidate, tensor by
tensor, as the model was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.graphs import add_constant
from parityscope.case.graph import constant_value
from parityscope.checks import Correction
from parityscope.checks.misreading.readings import misreadings_of
from parityscope.errors import ParityError
from parityscope.hypotheses.from_outputs.reference import READ, read_first

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from parityscope.arithmetic import Format
    from parityscope.hypotheses.arithmetic import Rewrite
    from parityscope.hypotheses.edits import NodeAgain
    from parityscope.hypotheses.from_outputs.telling import EquivalentEdit
    from parityscope.hypotheses.worker import EditCandidate

    Arrays = Mapping[str, np.ndarray]

# An element type of ONNX (onnx.proto, TensorProto.DataType).
_FLOAT = 1
_HALF = "f16"
_BEYOND_HALF = 65520.0  # what is as large as this is rounded to infinity (IEEE 754-2019, section 7.4)


def correct_input_order(order: Mapping[str, str]) -> Correction:
    """Each input of `order` gets the data of the one that it names."""

    def changed(_: int, arrays: Arrays, __: Arrays | None) -> Arrays:
        return {name: arrays[order.get(name, name)] for name in arrays}

    said = ", ".join(f"{order[name]} as {name}" for name in order)
    return Correction(words=f"is given {said}", inputs=changed)


def correct_output_order(order: Mapping[str, str]) -> Correction:
    """Each output of `order`, as the candidate names them, holds the values of the one that it names."""

    def changed(_: Arrays, candidate: Arrays) -> Arrays:
        right = {whose: candidate[name] for name, whose in order.items() if name in candidate}
        return {**candidate, **right}

    said = ", ".join(f"{name} as {whose}" for name, whose in order.items())
    return Correction(words=f"is held against the candidate's {said}", outputs=changed)


def correct_held_values(names: Sequence[str], family: str, words: str) -> Correction:
    """Inputs are what a reading (`_readings`) makes of them; those of which that says nothing are unchanged."""

    def held(name: str, arrays: Arrays, previous: Arrays | None) -> np.ndarray:
        before = None if previous is None else previous[name]
        return dict(misreadings_of(family, arrays[name], before)).get(words, arrays[name])

    def changed(_: int, arrays: Arrays, previous: Arrays | None) -> Arrays:
        return {**arrays, **{name: held(name, arrays, previous) for name in names}}

    return Correction(words=f"is given {', '.join(names)} as if it {words}", inputs=changed)


def correct_states(held: Mapping[int, Arrays]) -> Correction:
    """States are what the call before left; `held` by the sample's place in the data set, where there was a call before."""
    names = dict.fromkeys(name for states in held.values() for name in states)

    def changed(place: int, arrays: Arrays, _: Arrays | None) -> Arrays:
        return {**arrays, **held.get(place, {})}

    return Correction(words=f"is given {', '.join(names)} as the call before left them", inputs=changed)


def correct_old_output(output: str, start: int) -> Correction:
    """Elements of `output` from `start` on are taken from the reference: what was never written says nothing."""
    return Correction(
        words=f"is not held against elements of {output} from {start} on",
        outputs=lambda reference, candidate: _take_old_elements(reference, candidate, output, start),
    )


def _take_old_elements(reference: Arrays, candidate: Arrays, output: str, start: int) -> Arrays:
    """The candidate's outputs, elements of one from `start` on as the reference has them."""
    mine, its = reference.get(output), candidate.get(output)
    if mine is None or its is None or mine.shape != its.shape:
        return candidate
    right = its.reshape(-1).copy()
    right[start:] = mine.reshape(-1)[start:].astype(right.dtype)
    return {**candidate, output: right.reshape(its.shape)}


def leave_outputs_out(outputs: Sequence[str]) -> Correction:
    """What was done to `outputs` behind the model is known, and all that is wrong with them: they say nothing of the model."""

    def changed(reference: Arrays, candidate: Arrays) -> Arrays:
        for output in outputs:
            candidate = _take_old_elements(reference, candidate, output, 0)
        return candidate

    return Correction(
        words=f"is not held against {', '.join(outputs)}, whose values are explained",
        outputs=changed,
        parts=len(outputs),
    )


def correct_constants(constants: Arrays, words: str) -> Correction:
    """The named parameters have other values."""
    return Correction(words=words, model=lambda model: replace_constants(model, constants))


def replace_constants(model: ir.Model, constants: Arrays, reader: ir.Node | None = None) -> None:
    """Whatever reads a constant of these names (an initializer, or what a Constant node gives) reads the array from now on.

    With `reader` that node alone: others may read the same constant.
    """
    for value in [*model.graph.initializers.values(), *(one for node in model.graph for one in node.outputs)]:
        if value.name not in constants or constant_value(value) is None:
            continue
        made = add_constant(model.graph, np.array(constants[str(value.name)], order="C"), f"{value.name}::changed")
        for user, index in list(value.uses()):
            if reader is None or user is reader:
                user.replace_input_with(index, made)


def correct_range(tensor: str, storage: Format, *, clamped: bool) -> Correction | None:
    """Elements of `tensor` beyond the format's range become infinity, or its largest value where the engine clamps.

    None for formats that ONNX has no Cast to with infinities.
    """
    if not clamped and storage.name != _HALF:
        return None

    def rewrite(model: ir.Model, node: ir.Node, _: float) -> None:
        from parityscope.hypotheses.arithmetic.edits import insert_before, insert_behind

        if clamped:
            low, high = (
                add_constant(model.graph, np.array(sign * storage.largest, np.float32), f"{tensor}::bound")
                for sign in (-1.0, 1.0)
            )
            insert_behind(node, "Clip", [low, high])
            return
        # Divided by nought. Not Casts: what a format costs is told of a model as if its own types had FP32's range.
        old, edge = node.outputs[0], add_constant(model.graph, np.array(_BEYOND_HALF, np.float32), f"{tensor}::edge")
        divided = insert_behind(node, "Div", [edge]).producer()
        if divided is not None:
            kept = insert_before(divided, "Less", [insert_before(divided, "Abs", [old]), edge])
            divided.replace_input_with(1, insert_before(divided, "Cast", [kept], {"to": _FLOAT}))

    kind = "clamped to it" if clamped else "infinite"
    words = f"makes elements of {tensor} beyond {storage.title}'s largest value {kind}"

    def edit(model: ir.Model) -> None:
        node = _node_making(model, tensor)
        if node is not None:
            _replace_node(model, node, rewrite, 0.0)

    return Correction(words=words, model=edit)


def correct_layer(node: str, candidate: EditCandidate | EquivalentEdit | None) -> Correction | None:
    """The layer computes what a generated hypothesis says of it; None where a graph cannot say that."""
    if candidate is None or not _can_be_written(candidate):
        return None
    words = f"computes {node} with this change: {candidate.words}"
    return Correction(words=words, model=lambda model: _write_hypothesis(model, candidate))


def correct_layers(words: str, members: Sequence[EquivalentEdit]) -> Correction | None:
    """Several layers compute what was found of them, each with what goes with it; None where a graph cannot say one of these."""
    every = [one for member in members for one in (member, *member.also)]
    if any(one.inside or not _can_be_written(one) for one in every):
        return None

    def edit(model: ir.Model) -> None:
        for one in every:
            _write_hypothesis(model, one)

    return Correction(words=words, model=edit)


def _can_be_written(candidate: EditCandidate | EquivalentEdit) -> bool:
    return bool(candidate.node or candidate.constants or candidate.again or candidate.behind or candidate.reads)


def _write_hypothesis(model: ir.Model, candidate: EditCandidate | EquivalentEdit) -> None:
    """Changes the graph as a hypothesis says."""
    if candidate.output.endswith(READ):
        read_first(model.graph, {candidate.output})
    if candidate.again:
        _do_again(model, candidate.output, candidate.again)
        return
    if candidate.constants:
        reader = _node_making(model, candidate.step)
        read = {value.name for value in reader.inputs if value is not None} if reader is not None else set()
        replace_constants(model, candidate.constants, reader if candidate.constants.keys() <= read else None)
        return
    changed = _node_making(model, candidate.step)
    if changed is not None and (candidate.node or candidate.reads is not None):
        _change_node(changed, candidate.node, candidate.reads)
    for op_type, numbers in candidate.behind:
        last = _node_making(model, candidate.output)
        if last is not None:
            _replace_node(model, last, _append_operator(op_type, numbers), 0.0)


def _do_again(model: ir.Model, output: str, nodes: Sequence[NodeAgain]) -> None:
    """Nodes done on other tensors; the last gives `output`.

    Raises:
        ParityError: one reads what the model does not hold, or what only comes of it.
    """
    graph = model.graph
    known = {value.name: value for value in (*graph.inputs, *graph.initializers.values())}
    known |= {value.name: value for node in graph for value in node.outputs}
    made: list[ir.Value] = []

    def find(name: str | int | np.ndarray) -> ir.Value | None:
        if isinstance(name, int):
            return made[name]
        if isinstance(name, np.ndarray):
            return add_constant(graph, np.array(name, order="C"), f"{output}::again{len(made)}")
        value = known.get(name) or known.get(name.removesuffix(READ))
        if name and value is None:
            raise ParityError(f"the model holds no tensor {name!r}")
        return value

    for one in nodes:
        node = _node_to_do(model, one, [find(name) for name in one.reads])
        graph.append(node)
        made.append(node.outputs[0])
    old, own = known[output], {value.producer() for value in made}
    for user, index in list(old.uses()):
        if user not in own:
            user.replace_input_with(index, made[-1])
    for place, value in enumerate(graph.outputs):
        if value is old:
            graph.outputs[place] = made[-1]
    _name_like(made[-1], old)
    try:
        graph.sort()
    except ValueError as error:
        raise ParityError(f"what would give {output!r} comes of it") from error


def _node_to_do(model: ir.Model, one: NodeAgain, reads: Sequence[ir.Value | None]) -> ir.Node:
    """The node of a `NodeAgain`, in no graph yet."""
    import onnx
    import onnx_ir as ir

    message = onnx.NodeProto(op_type="Identity")
    message.MergeFromString(one.node)
    source = _node_making(model, one.of) if one.of else ir.serde.deserialize_node(message)
    if source is None:
        raise ParityError(f"the model has no node that gives {one.of!r}")
    given = list(source.attributes.values())
    return ir.Node(source.domain, source.op_type, reads, given, num_outputs=max(1, len(source.outputs)))


def _name_like(new: ir.Value, old: ir.Value) -> None:
    """Gives a value the type and the name of the one in whose place it is read."""
    new.type, new.shape = old.type, old.shape
    old.name, new.name = f"{old.name}::unchanged", old.name


def _change_node(node: ir.Node, written: bytes, reads: tuple[int | None, ...] | None) -> None:
    """Another operator or other attributes, reading other ones of its inputs."""
    import onnx
    import onnx_ir as ir

    if reads is not None:
        given = list(node.inputs)
        node.resize_inputs(len(reads))
        for place, index in enumerate(reads):
            node.replace_input_with(place, None if index is None else given[index])
    if written:
        message = onnx.NodeProto()
        message.ParseFromString(written)
        del message.input[:]
        other = ir.serde.deserialize_node(message)
        node.op_type = other.op_type
        node.attributes.clear()
        node.attributes.update(other.attributes)


def _append_operator(op_type: str, numbers: tuple[float | np.ndarray, ...]) -> Rewrite:
    """Puts an operator behind what a node gives."""

    def rewrite(model: ir.Model, node: ir.Node, _: float) -> None:
        from parityscope.hypotheses.arithmetic.edits import insert_behind

        held = [
            add_constant(model.graph, np.array(one, np.float32), f"{node.outputs[0].name}::behind{i}")
            for i, one in enumerate(numbers)
        ]
        insert_behind(node, op_type, held)

    return rewrite


def _node_making(model: ir.Model, tensor: str) -> ir.Node | None:
    return next((node for node in model.graph if any(value.name == tensor for value in node.outputs)), None)


def _replace_node(model: ir.Model, node: ir.Node, rewrite: Rewrite, parameter: float) -> None:
    """Rewrites a node; what everything reads in place of its first output bears that one's name from then on."""
    old = node.outputs[0]
    places = [place for place, value in enumerate(model.graph.outputs) if value is old]
    users = list(old.uses())
    rewrite(model, node, parameter)
    new: ir.Value | None = old
    if places:
        new = model.graph.outputs[places[0]]
    elif users:
        user, index = users[0]
        new = user.inputs[index]
    if new is not None and new is not old:
        _name_like(new, old)
    model.graph.sort()
