"""What the example of each code really computes: the nodes, the values of both sides, the proof, or the lines of a log."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import onnx

    from parityscope.checks import Example
    from parityscope.examination import Examination
    from parityscope.linting import RuleExample

__all__ = ["Shown", "ShownLog", "ShownTensor", "show_example"]

LOGS = Path(__file__).with_name("log_examples.json")
# What stands in no log: two inputs of one type and shape in the network that TensorRT makes of a file.
ALIKE = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] a, float[1,8] b) => (float[1,8] y) {
  h = Mul(a, a)
  y = Sub(h, b)
}"""
_LARGEST = 4096  # elements of a constant that is looked at (chosen): examples have some hundreds


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTensor:
    """A tensor as its rows hold it: the reference and the candidate, or a constant and what a format keeps of it.

    One row where both sides are given the same.
    """

    name: str
    rows: tuple[tuple[str, np.ndarray], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownLog:
    """A log's lines, and the numbers (from 0) of those without which the code is not found."""

    lines: tuple[str, ...]
    deciding: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a picture shows. `claim` is the finding's own sentence, "" where the example cannot be found on this machine.

    `graph` has the nodes and edges of a neighbourhood, `proof` what was changed, what was measured, and that before and after.
    """

    claim: str = ""
    graph: Mapping[str, Any] | None = None
    tensors: tuple[ShownTensor, ...] = ()
    proof: tuple[str, str, float, float] | None = None
    layers: tuple[tuple[str, str], ...] = ()
    logs: tuple[ShownLog, ...] = ()
    missing: str = field(default="")


def show_example(code: str) -> Shown:
    """The first example in which the code must be found, run here."""
    from parityscope.checks import known_checks
    from parityscope.linting import known_rules

    with tempfile.TemporaryDirectory() as scratch:
        if code in known_checks():
            return _show_check(code, known_checks()[code].holds[0], Path(scratch))
        if code in known_rules():
            return _show_rule(code, known_rules()[code].holds[0], Path(scratch))
        return _show_log(code, Path(scratch))


# --- checks ----------------------------------------------------------------------------------------------------------


def _show_check(code: str, example: Example, folder: Path) -> Shown:
    from parityscope.checks import known_checks
    from parityscope.errors import ParityError
    from parityscope.study import examine_request
    from parityscope.testing.check_contract import findings_told, prepare_example
    from parityscope.testing.networks import parse_network

    model = parse_network(example.model, example.constants)
    if example.executed is not None:
        told = findings_told(known_checks()[code], example, folder / "told")
        seen = tuple(
            (one.name, f"{one.layer_type}, asked {one.asked or 'nothing'}, runs {one.precision} {one.provider}".strip())
            for one in example.executed.layers
        )
        marked = {node for one in example.executed.layers for node in one.nodes}
        return Shown(claim=told[0].claim if told else "", graph=_graph_of(model, marked), layers=seen)
    try:
        asked = prepare_example(example, folder / "run")
        tensors = tuple(_tensors_of(example, asked))
        study = _study_made(code) or examine_request(asked)
    except ParityError as error:
        return Shown(graph=_graph_of(model, {example.site}), missing=str(error).splitlines()[0])
    found = next((one for one in study["findings"] if one["code"] == code), None)
    errors = {one["node"]: one for one in study["tensors"]}
    if found is None:
        return Shown(
            graph=_graph_of(model, {example.site}, errors),
            tensors=tensors,
            missing="its processor or its runtimes lack this fault",
        )
    site = found["site"] or {}
    marked = {site.get("node", ""), site.get("tensor", ""), *_names_in(found["details"])}
    return Shown(
        claim=found["claim"],
        graph=_graph_of(model, marked, errors),
        tensors=tensors,
        proof=_proof_of(found),
    )


def _study_made(code: str) -> dict[str, Any] | None:
    """The study of this example that `check_examples` left, where the tests say that it ran on this code."""
    made = Path(os.environ.get("EXAMINED_EXAMPLES", os.devnull)) / code / "holds-0" / "study.json"
    return json.loads(made.read_text(encoding="utf-8")) if made.is_file() else None


def _names_in(details: object) -> Iterator[str]:
    """Every short text of a finding's details: names of tensors and nodes are among them."""
    if isinstance(details, str):
        yield details
    elif isinstance(details, dict):
        for key, value in details.items():
            yield from _names_in(key)
            yield from _names_in(value)
    elif isinstance(details, (list, tuple)):
        for one in details:
            yield from _names_in(one)


def _proof_of(found: Mapping[str, Any]) -> tuple[str, str, float, float] | None:
    """What was changed and measured, before and after; an experiment that changes nothing has no before."""
    for one in found["evidence"]:
        asked = one["experiment"]
        told = one["outcome"] == "supports" and one["before"] is not None and one["after"] is not None
        if told and not asked["change"].startswith("none"):
            return asked["change"], asked["measure"], float(one["before"]), float(one["after"])
    return None


def _tensors_of(example: Example, asked: Examination) -> list[ShownTensor]:
    """Inputs and outputs of the first sample on which the outputs differ (else of the first)."""
    from parityscope.backends.recording import RecordingRequest, record_trace

    samples = list(asked.case.inputs)
    given = [one.arrays for one in samples]
    changed = list(example.inputs_fault(given)) if example.inputs_fault is not None else given
    first: list[ShownTensor] = []
    for place, sample in enumerate(samples):
        wanted = RecordingRequest(samples=(sample.index,))
        ours, theirs = (
            record_trace(asked.case.model, asked.case.inputs, side, wanted)
            for side in (asked.reference, asked.candidate)
        )
        pairs = [
            *((name, array, changed[place].get(name, array)) for name, array in sample.arrays.items()),
            *(
                (one.name, ours.get(sample.index, one.name), theirs.get(sample.index, one.name))
                for one in asked.case.model.outputs
                if one.name in ours.names and one.name in theirs.names
            ),
        ]
        shown = [_tensor_of(name, one, other, is_input=name in sample.arrays) for name, one, other in pairs]
        if any(len(one.rows) > 1 and not _equal(*(array for _, array in one.rows)) for one in shown):
            return shown
        first = first or shown
    return first


def _tensor_of(name: str, one: np.ndarray, other: np.ndarray, *, is_input: bool) -> ShownTensor:
    if is_input and _equal(one, other):
        return ShownTensor(name=f"input {name}", rows=(("both sides", np.asarray(one)),))
    rows = (("reference", np.asarray(one)), ("candidate", np.asarray(other)))
    return ShownTensor(name=f"{'input' if is_input else 'output'} {name}", rows=rows)


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    return one.shape == other.shape and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


# --- rules -----------------------------------------------------------------------------------------------------------


def _show_rule(code: str, example: RuleExample, folder: Path) -> Shown:
    from parityscope.linting import known_rules
    from parityscope.linting.contract import findings_of
    from parityscope.testing.networks import parse_network

    found = findings_of(known_rules()[code], example, folder)[0]
    model = parse_network(example.model, example.constants)
    names = {*_names_in(dict(found.details)), found.site.node if found.site else "", example.node}
    return Shown(
        claim=found.claim,
        graph=_graph_of(model, names),
        tensors=tuple(_constants_of(model, example.formats[:1])),
    )


def _constants_of(model: onnx.ModelProto, formats: Sequence[str]) -> Iterator[ShownTensor]:
    """Every constant of floats that the format changes, and what it becomes."""
    from onnx import numpy_helper

    from parityscope.arithmetic import format_named
    from parityscope.arithmetic.rounding import round_to

    held = [(one.name, one) for one in model.graph.initializer]
    held += [
        (node.output[0], attribute.t)
        for node in model.graph.node
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    ]
    for name, proto in held:
        array = numpy_helper.to_array(proto)
        if array.dtype != np.float32 or not 0 < array.size <= _LARGEST:
            continue
        for short in formats:
            kept = round_to(array, format_named(short)).astype(np.float64)
            if not np.allclose(array, kept, rtol=1e-3, atol=0, equal_nan=True):
                yield ShownTensor(name=name, rows=(("as stored", array), (f"in {short.upper()}", kept)))


# --- graphs ----------------------------------------------------------------------------------------------------------


def _graph_of(
    model: onnx.ModelProto, marked: Iterable[str], errors: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """Inputs and nodes with what each introduces; those that are named by themselves or by a tensor they write are marked."""
    wanted = {one for one in marked if one}
    constants = {one.name for one in model.graph.initializer}
    nodes, edges, written = [], [], {}
    for value in model.graph.input:
        shape = "×".join(dim.dim_param or str(dim.dim_value) for dim in value.type.tensor_type.shape.dim)
        identity = f"input {value.name}"
        nodes.append(_node_of(identity, value.name, "input", suspect=value.name in wanted, told=shape or "a number"))
        written[value.name] = identity
    for index, node in enumerate(model.graph.node):
        name = node.name or f"{node.op_type}#{index}"
        named = {name, node.name, f"{node.op_type}#{index}", *node.output} - {""}
        read = [one for one in node.input if one in constants]
        measured = (errors or {}).get(name)
        nodes.append(
            _node_of(
                name,
                ", ".join(node.output) + f" · reads {', '.join(read)}" * bool(read),
                node.op_type,
                suspect=bool(named & wanted) or bool(wanted & set(read)),
                introduced=measured["introduced"] if measured else None,
                inherited=measured["inherited"] if measured else None,
            )
        )
        edges += [(written[one], name, one) for one in node.input if one in written]
        written |= dict.fromkeys(node.output, name)
    return {"nodes": nodes, "edges": edges}


def _node_of(identity: str, label: str, operator: str, *, suspect: bool, **more: Any) -> dict[str, Any]:
    held = {"introduced": None, "inherited": None, "told": "", **more}
    return {"id": identity, "label": label, "op_type": operator, "is_suspect": suspect, **held}


# --- logs ------------------------------------------------------------------------------------------------------------


def _show_log(code: str, folder: Path) -> Shown:
    logs = json.loads(LOGS.read_text(encoding="utf-8")).get(code)
    if logs is None:
        return _show_network(code, folder)
    find = partial(_claim_in_logs, code, folder)
    return Shown(
        claim=find(logs),
        logs=tuple(
            ShownLog(
                lines=tuple(lines),
                deciding=frozenset(
                    number
                    for number in range(len(lines))
                    if find([*logs[:place], [*lines[:number], *lines[number + 1 :]], *logs[place + 1 :]]) != find(logs)
                ),
            )
            for place, lines in enumerate(logs)
        ),
    )


def _claim_in_logs(code: str, folder: Path, logs: Sequence[Sequence[str]]) -> str:
    """What is said of one log, or of two, under that code; "" where it is not found, or where nothing is left to read."""
    from parityscope.errors import ParityError
    from parityscope.logs import compare_logs, find_between, find_in_log, read_log

    paths = [folder / f"{number}.log" for number in range(len(logs))]
    for path, lines in zip(paths, logs, strict=True):
        path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    try:
        read = [read_log(path) for path in paths]
    except ParityError:
        return ""
    found = find_between(compare_logs(*read)) if len(read) > 1 else find_in_log(read[0])
    return next((one.claim for one in found if one.code == code), "")


def _show_network(code: str, folder: Path) -> Shown:
    """What TensorRT makes of a file, where no log tells it."""
    from parityscope.backends.tensorrt.findings import find_in_view
    from parityscope.backends.tensorrt.network import network_view
    from parityscope.backends.tensorrt.packages import find_package
    from parityscope.errors import ParityError
    from parityscope.testing.networks import parse_network, write_network

    model = parse_network(ALIKE)
    try:
        view = network_view(write_network(folder / "model.onnx", ALIKE), find_package())
    except ParityError as error:
        return Shown(graph=_graph_of(model, ()), missing=str(error).splitlines()[0])
    found = [one for one in find_in_view(view) if one.code == code]
    names = _names_in([dict(one.details) for one in found])
    return Shown(claim=found[0].claim if found else "", graph=_graph_of(model, names))
