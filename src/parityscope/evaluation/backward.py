"""One sweep backwards over the steps of a program: what a small change of each value does to the outputs, to first order.

The derivative of one node is `onnx-ad`'s (it differentiates graphs of ONNX; whole networks are too much for it, single nodes with
the shapes that a run showed are not); the sweep is ours. Several directions are carried at once, in a last axis. Sessions
are kept by kind and shape, so that equal layers share one. A node that cannot be differentiated stops its own branch alone:
everything above it is *unknown*, and said to be.

The derivative of a node that only moves elements: where each of its results came from is asked of the runtime itself.

The node runs on the numbers of its inputs' elements in place of the elements; what it gives says for each result which element
it is a copy of. That holds for every way to move (pads that reflect, axes as attributes), without a rule of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.version_converter
import onnx_ir as ir

from parityscope.errors import ParityError
from parityscope.evaluation.kernels import declare_input, open_message, tensor_message
from parityscope.evaluation.sessions import Sessions
from parityscope.evaluation.straight import adjoints_of_quantizers, step_of_floats
from parityscope.light_dataclasses import dataclass, field
from parityscope.operators import of_kind, operators_that_move, with_trait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from scipy.sparse import csr_matrix

    from parityscope.evaluation.program import Program, ProgramStep

_MOVES = of_kind("movement") - {"Scatter"}
_IN_ORDER = operators_that_move("in order")
_MOST = 1 << 24  # numbers that float32 holds exactly
_SMALL = 4096  # elements: constants up to this size are part of a derivative's session. Chosen
_SCALARS = 16  # elements: constants of any type that say how to compute (scales, bounds). Chosen
# The oldest opsets for which derivatives are written.
_OPSET, _MAX_POOL = 13, 16
_RECURRENT = of_kind("recurrent")
_LENGTHS = 4  # where a recurrent operator reads how long its sequences are
_PASSES_ON = with_trait("passes on") - of_kind("conversion")
# Their derivative is zero wherever they have one, and says nothing of what a small change does.
_JUMPS = with_trait("steps")


class _MovedAdjoints:
    """Adjoints of the inputs of one kind of step, of one shape.

    Raises:
        ParityError: the step cannot be run on numbers of elements, or has too many of them.
    """

    def __init__(
        self,
        step: ProgramStep,
        inputs: Sequence[np.ndarray | None],
        wanted: Sequence[int],
        program: Program,
        sessions: Sessions,
    ) -> None:
        self._names = [step.outputs.index(name) for name in step.outputs if name]
        self._shapes = {at: array.shape for at, array in enumerate(inputs) if at in wanted and array is not None}
        self._tables: dict[tuple[int, int], csr_matrix] = {}
        self._in_order = step.op_type in _IN_ORDER and list(wanted) == [0]
        if not self._in_order:
            self._find(step, inputs, wanted, program, sessions)

    def _find(
        self,
        step: ProgramStep,
        inputs: Sequence[np.ndarray | None],
        wanted: Sequence[int],
        program: Program,
        sessions: Sessions,
    ) -> None:
        from scipy.sparse import csr_matrix

        sizes = [int(np.prod(self._shapes[index])) for index in wanted]
        if sum(sizes) >= _MOST:
            raise ParityError("it has too many elements")
        starts = np.cumsum([1, *sizes])
        # Numbers with either sign: what is put in beside the elements (pads of a constant) comes out the same both times.
        given = []
        for sign in (1, -1):
            fed = list(inputs)
            for index, start, size in zip(wanted, starts, sizes, strict=False):
                fed[index] = (sign * np.arange(start, start + size, dtype=np.float32)).reshape(self._shapes[index])
            given.append(sessions.run(step, fed, program))
        for at in self._names:
            numbers, others = (np.asarray(one[at], np.float32).ravel() for one in given)
            came = np.where(numbers == -others, numbers, 0).astype(np.int64)
            for index, start, size in zip(wanted, starts, sizes, strict=False):
                places = np.flatnonzero((came >= start) & (came < start + size))
                rows = came[places] - start
                ones = np.ones(places.size, np.float32)
                self._tables[at, index] = csr_matrix((ones, (rows, places)), shape=(size, came.size))

    def run(self, seeds: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        """The adjoints of the wanted inputs, (dimensions, directions), from those of results, by place."""
        directions = next(iter(seeds.values())).shape[-1]
        if self._in_order:
            return {0: seeds[0].reshape(*self._shapes[0], directions)}
        found = {}
        for index, shape in self._shapes.items():
            parts = [self._tables[at, index] @ seed.reshape(-1, directions) for at, seed in seeds.items()]
            found[index] = np.sum(parts, axis=0, dtype=np.float32).reshape(*shape, directions)
        return found


@dataclass(slots=True, kw_only=True)
class Sweep:
    """Sweeps over one program; what it opened for one sample serves the next. `refused` says which operators it could not do."""

    program: Program
    threads: int = 2
    refused: dict[str, str] = field(default_factory=dict)
    _kept: dict[object, _Derivative | _MovedAdjoints | None] = field(default_factory=dict)
    _sessions: Sessions | None = None

    @property
    def opened(self) -> int:
        """How many derivatives were written down so far, refused ones too."""
        return len(self._kept)

    def run(
        self,
        values: Callable[[str], np.ndarray | None],
        seeds: Mapping[str, np.ndarray],
    ) -> Iterator[tuple[ProgramStep, dict[str, np.ndarray], bool]]:
        """Each step that reaches a seed, last first, with the adjoints of its results and whether these are complete.

        Args:
            values: What the network computed, by site; None for what it did not keep.
            seeds: By output: float32, (dimensions of the output, directions).
        """
        adjoints = {site: seed.astype(np.float32) for site, seed in seeds.items()}
        unknown: set[str] = set()
        for step in reversed(self.program.steps):
            own = {site: adjoints.pop(site) for site in step.outputs if site in adjoints}
            lost = any(site in unknown for site in step.outputs)
            if not own and not lost:
                continue
            yield step, own, not lost
            found = self._adjoints_of_step(step, own, values) if own else {}
            if lost or found is None:
                unknown.update(name for name in step.reads if name in self.program.steps_of)
            for name, adjoint in (found or {}).items():
                adjoints[name] = adjoints[name] + adjoint if name in adjoints else adjoint

    def _adjoints_of_step(
        self, step: ProgramStep, own: Mapping[str, np.ndarray], values: Callable[[str], np.ndarray | None]
    ) -> dict[str, np.ndarray] | None:
        """The adjoints of what a step computed with; None where they cannot be had."""
        inputs = [values(name) if name else None for name in step.inputs]
        first = adjoints_of_quantizers(step, inputs, own.get(step.outputs[0]), values, self.program.steps_of)
        if first is not None:
            return {step.inputs[0]: first} if step.inputs[0] in self.program.steps_of else {}
        floats = step_of_floats(step, inputs)
        if floats is not None:
            given = {site: own[site] / floats.result for site in step.outputs if site in own}
            found = self._adjoints_of_floats(floats.step, floats.inputs, given, lambda name: _as_floats(values(name)))
            return found and {name: adjoint * floats.scale for name, adjoint in found.items()}
        return self._adjoints_of_floats(step, inputs, own, values)

    def _adjoints_of_floats(
        self,
        step: ProgramStep,
        inputs: list[np.ndarray | None],
        own: Mapping[str, np.ndarray],
        values: Callable[[str], np.ndarray | None],
    ) -> dict[str, np.ndarray] | None:
        # Integers that stand for numbers are moved as these are.
        kinds = {np.dtype(np.float32)} | {
            array.dtype for site in own if step.op_type in _MOVES and (array := values(site)) is not None
        }
        wanted = [
            index
            for index, (name, value) in enumerate(zip(step.inputs, inputs, strict=True))
            if name in self.program.steps_of and value is not None and value.dtype in kinds
        ]
        if not wanted:
            return {}
        if step.op_type in _PASSES_ON:
            return {step.inputs[0]: own[step.outputs[0]]} if step.outputs[0] in own else {}
        if (
            step.op_type in _JUMPS
            or step.captured
            or any(value is None for name, value in zip(step.inputs, inputs, strict=True) if name)
        ):
            self.refused.setdefault(step.op_type, "it jumps, or has bodies, or values of it are not known")
            return None
        if step.op_type == "AveragePool" and _counts_uneven_pads(step):
            self.refused.setdefault(step.op_type, "it counts pads that differ, for which the library's rule is wrong")
            return None
        seeded = tuple(site in own for site in step.outputs)
        key = (
            step.kind,
            tuple(None if value is None else (value.dtype.str, value.shape, _small_content(value)) for value in inputs),
            tuple(
                self.program.constants[name].tobytes() if _is_small(name, self.program) else b"" for name in step.inputs
            ),
            tuple(wanted),
            seeded,
        )
        if key not in self._kept:
            self._kept[key] = self._open_derivative(step, inputs, wanted, own, values)
        derivative = self._kept[key]
        if derivative is None:
            return None
        try:
            if isinstance(derivative, _MovedAdjoints):
                moved = derivative.run({at: own[site] for at, site in enumerate(step.outputs) if site in own})
                return _sum_adjoints(step, {index: moved.get(index) for index in wanted})
            found = derivative.run(inputs, [own.get(site) for site in step.outputs])
        except Exception as error:  # noqa: BLE001 - the runtime's own types are children of Exception, every one
            self.refused.setdefault(step.op_type, _shorten_error(error))
            return None
        return _sum_adjoints(step, {index: found.get(f"adj_i{index}") for index in wanted})

    def _open_derivative(
        self,
        step: ProgramStep,
        inputs: list[np.ndarray | None],
        wanted: list[int],
        own: Mapping[str, np.ndarray],
        values: Callable[[str], np.ndarray | None],
    ) -> _Derivative | _MovedAdjoints | None:
        if step.op_type in _MOVES:
            self._sessions = self._sessions or Sessions(threads=self.threads)
            try:
                return _MovedAdjoints(step, inputs, wanted, self.program, self._sessions)
            except ParityError:  # then the library may have a rule for it
                pass
        try:
            return _Derivative(step, inputs, wanted, own, values, self.program, self.threads)
        except Exception as error:  # noqa: BLE001 - whatever a library of rules finds no rule for
            self.refused.setdefault(step.op_type, _shorten_error(error))
            return None


def _as_floats(value: np.ndarray | None) -> np.ndarray | None:
    return None if value is None else value.astype(np.float32, copy=False)


class _Derivative:
    """The reverse derivative of one node, as a session."""

    def __init__(
        self,
        step: ProgramStep,
        inputs: list[np.ndarray | None],
        wanted: list[int],
        own: Mapping[str, np.ndarray],
        values: Callable[[str], np.ndarray | None],
        program: Program,
        threads: int,
    ) -> None:
        import onnx_ad

        held = {
            at: value
            for at, value in enumerate(inputs)
            if value is not None and at not in wanted and (_small_content(value) or _is_small(step.inputs[at], program))
        }
        node = ir.serde.serialize_node(step.node)
        del node.input[:], node.output[:]
        node.input.extend("" if value is None else f"i{at}" for at, value in enumerate(inputs))
        node.output.extend(f"o{at}" if site else "" for at, site in enumerate(step.outputs))
        results = [(f"o{at}", values(site)) for at, site in enumerate(step.outputs) if site in own]
        results_shape = results[0][1].shape if results and results[0][1] is not None else ()
        nodes, extra = (
            _with_whole_sequences(node, inputs)
            if step.op_type in _RECURRENT
            else _with_explicit_pads(node, inputs, results_shape)
        )
        graph = onnx.GraphProto(name="step", node=nodes, initializer=extra)
        fed = [(f"i{at}", value) for at, value in enumerate(inputs) if value is not None and at not in held]
        graph.input.extend(declare_input(name, value, fixed=True) for name, value in fed)
        graph.output.extend(declare_input(name, value, fixed=True) for name, value in results)
        graph.initializer.extend(tensor_message(array, f"i{at}") for at, array in held.items())
        least = _MAX_POOL if step.op_type == "MaxPool" else _OPSET
        model = _in_opset(graph, program.opsets.get("", _OPSET), least)
        found = onnx_ad.reverse(model, inputs=[f"i{at}" for at in wanted], layout="onnx")
        found.ir_version = min(found.ir_version, 10)
        given = {name for name, _ in results}
        kept = [value for value in found.graph.output if value.name not in given]
        del found.graph.output[:]
        found.graph.output.extend(kept)
        self._session = open_message(found, threads)
        self._needs = {value.name for value in self._session.get_inputs()}
        self._gives = [value.name for value in self._session.get_outputs()]

    def run(self, inputs: list[np.ndarray | None], seeds: list[np.ndarray | None]) -> dict[str, Any]:
        """The adjoints of inputs, by the names `adj_i0`, `adj_i1`, ..."""
        feeds = {f"i{at}": np.ascontiguousarray(value) for at, value in enumerate(inputs) if value is not None}
        feeds |= {f"adj_o{at}": np.ascontiguousarray(seed) for at, seed in enumerate(seeds) if seed is not None}
        found = self._session.run(self._gives, {name: array for name, array in feeds.items() if name in self._needs})
        return dict(zip(self._gives, found, strict=True))


def _sum_adjoints(step: ProgramStep, found: Mapping[int, np.ndarray | None]) -> dict[str, np.ndarray]:
    """Adjoints by what was read: a tensor that is read twice has the sum of both."""
    back: dict[str, np.ndarray] = {}
    for index, adjoint in found.items():
        name = step.inputs[index]
        if adjoint is not None:
            back[name] = back[name] + adjoint if name in back else adjoint
    return back


def _counts_uneven_pads(step: ProgramStep) -> bool:
    held = step.node.attributes
    pads = list(held["pads"].as_ints()) if "pads" in held else []
    counted = "count_include_pad" in held and held["count_include_pad"].as_int() == 1
    return counted and pads[: len(pads) // 2] != pads[len(pads) // 2 :]


def _in_opset(graph: onnx.GraphProto, opset: int, least: int) -> onnx.ModelProto:
    """A model of at least opset `least`: nodes of an older one say their axes, bounds and ratios in another way."""
    version = onnx.OperatorSetIdProto(version=opset)
    model = onnx.ModelProto(ir_version=8, graph=graph, opset_import=[version])
    if opset >= least:
        return model
    if all(_means_the_same(node.op_type, opset, least) for node in graph.node):
        model.opset_import[0].version = least  # a conversion would cost more than the derivative itself
        return model
    try:
        return onnx.version_converter.convert_version(model, least)
    except Exception:  # noqa: BLE001 - what has no adapter may mean the same all along
        model.opset_import[0].version = least
        return model


def _means_the_same(op_type: str, opset: int, later: int) -> bool:
    """Whether the standard's text of an operator is one at two versions of its operator set."""
    try:
        versions = [onnx.defs.get_schema(op_type, version, "").since_version for version in (opset, later)]
    except onnx.defs.SchemaError:
        return False
    return versions[0] == versions[1]


def _is_small(name: str, program: Program) -> bool:
    """Whether an input is a constant of few numbers, as scales of Resize are."""
    return name in program.constants and program.constants[name].size <= _SCALARS


def _with_explicit_pads(
    node: onnx.NodeProto, inputs: list[np.ndarray | None], given: tuple[int, ...]
) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """A convolution that pads its sides differently as a Pad before one that pads nothing, which the library's rules are for."""
    attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    data, weights = inputs[0], inputs[1] if len(inputs) > 1 else None
    if node.op_type != "Conv" or data is None or weights is None:
        return [node], []
    count = data.ndim - 2
    pads = list(attributes.get("pads", [0] * (2 * count)))
    automatic = bytes(attributes.get("auto_pad", b"NOTSET"))
    if automatic in {b"SAME_UPPER", b"SAME_LOWER"}:
        strides, dilations = (list(attributes.get(name, [1] * count)) for name in ("strides", "dilations"))
        missing = [
            max(
                0,
                (given[2 + at] - 1) * strides[at]
                + dilations[at] * (weights.shape[2 + at] - 1)
                + 1
                - data.shape[2 + at],
            )
            for at in range(count)
        ]
        small, large = [one // 2 for one in missing], [one - one // 2 for one in missing]
        pads = [*small, *large] if automatic == b"SAME_UPPER" else [*large, *small]
    elif pads[:count] == pads[count:]:
        return [node], []
    amounts = np.array([0, 0, *pads[:count], 0, 0, *pads[count:]], np.int64)
    pad = onnx.NodeProto(op_type="Pad", input=[node.input[0], "pads"], output=["padded"])
    for one in [one for one in node.attribute if one.name in {"pads", "auto_pad"}]:
        node.attribute.remove(one)
    node.input[0] = "padded"
    return [pad, node], [tensor_message(amounts, "pads")]


def _with_whole_sequences(
    node: onnx.NodeProto, inputs: list[np.ndarray | None]
) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """A recurrent node whose sequences all end early as one of shorter sequences, with zeros behind, as the standard says."""
    data, lengths = inputs[0], inputs[_LENGTHS] if len(inputs) > _LENGTHS else None
    axis = next((onnx.helper.get_attribute_value(one) for one in node.attribute if one.name == "layout"), 0)
    if data is None or lengths is None or np.unique(lengths).size != 1 or lengths[0] == data.shape[axis]:
        return [node], []
    whole, length = data.shape[axis], int(lengths[0])
    node.input[_LENGTHS] = ""
    cut = onnx.NodeProto(op_type="Slice", input=[node.input[0], "cut0", "cut1", "cut2"], output=["shorter"])
    node.input[0] = "shorter"
    held = {"cut0": [0], "cut1": [length], "cut2": [axis]}
    nodes = [cut, node]
    if node.output[0]:
        # Y is (sequence, directions, batch, hidden), with `layout` (batch, sequence, directions, hidden).
        held["behind"] = [0] * 4 + [whole - length if at == axis else 0 for at in range(4)]
        nodes.append(onnx.NodeProto(op_type="Pad", input=["early", "behind"], output=[node.output[0]]))
        node.output[0] = "early"
    return nodes, [tensor_message(np.array(value, np.int64), name) for name, value in held.items()]


def _small_content(value: np.ndarray) -> bytes | None:
    """A small array that says how to compute, as bytes."""
    return value.tobytes() if value.size <= _SMALL and value.dtype != np.float32 else None


def _shorten_error(error: Exception) -> str:
    return " ".join(str(error).split())[:160]
