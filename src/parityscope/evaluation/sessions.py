"""Sessions of ONNX Runtime that each run one node, shared by all nodes that do the same.

A session depends on the *kind* of a step (operator, attributes) and on the element types and ranks of what it is given;
weights are fed like all other inputs, so that a hundred equal layers share one session and no weight is copied. Vectors of
integers (shapes, axes, sizes) are declared with their length, which Resize, Slice and Pad want, and small constant ones are held
by the session. What an operator takes as a constant alone is held too, where it refuses to be opened otherwise.

All sessions take memory from one arena of the runtime's (60 sessions that each ran a tensor of 16 MiB kept 1.0 GB in arenas of
their own), keep no more threads than one beside the caller's, and do not spin: threads that spin steal the processors from the
next session (20 to 80 times slower on two cores). At most `LIMIT` are kept, least used first to go.

This is the one file of the package beside the backends that imports a runtime: the evaluator's arithmetic *is* ONNX Runtime's.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from parityscope.custom_operators import libraries
from parityscope.errors import ParityError
from parityscope.evaluation.machine import share_memory
from parityscope.trace import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from parityscope.evaluation.program import Program, Step

    Value = Any  # an array, a list of arrays (a sequence), a dict (a map) or None (an empty optional)

__all__ = ["LIMIT", "Sessions", "declared", "open_message", "tensor_message"]

LIMIT = 400  # chosen: a session costs about 60 kB; the networks at hand have 11 to 118 kinds of nodes
_HELD = 64  # elements: integer constants up to this size are part of the session
_SHARED = 1 << 14  # elements, chosen: with fewer a second thread gains nothing
_DIRECT = 1 << 18  # bytes: from here on what a run gives is not copied, which costs 30 microseconds more to ask for
_KEPT_WEIGHTS = 1 << 28  # bytes, chosen: weights that are rounded are kept for the next sample up to this
_SILENT = 4  # the runtime's severity "fatal": what it calls an error is raised too, and told once

_PACKED = frozenset({"float4_e2m1fn", "int2", "int4", "uint2", "uint4"})  # several elements a byte: in files alone

# ONNX Runtime's names of element types that numpy lacks: (ml_dtypes name, TensorProto.DataType).
_ML_TYPES = {
    "tensor(bfloat16)": ("bfloat16", 16),
    "tensor(float8e4m3fn)": ("float8_e4m3fn", 17),
    "tensor(float8e4m3fnuz)": ("float8_e4m3fnuz", 18),
    "tensor(float8e5m2)": ("float8_e5m2", 19),
    "tensor(float8e5m2fnuz)": ("float8_e5m2fnuz", 20),
}


class Sessions:
    """Runs steps, and keeps what it opened for that. Not for two threads at once."""

    def __init__(self, *, threads: int = 2, limit: int = LIMIT) -> None:
        self._threads = threads
        self._limit = limit
        self._kept: OrderedDict[object, _Kernel] = OrderedDict()
        self._constant: dict[object, tuple[int, ...]] = {}
        self.weights = Weights()

    def __len__(self) -> int:
        """How many are open."""
        return len(self._kept)

    def clear(self) -> None:
        """Closes what is open, and forgets the weights that were changed."""
        self._kept.clear()
        self.weights = Weights()

    def run(self, step: Step, inputs: Sequence[Value], program: Program, captured: Sequence[Value] = ()) -> list[Value]:
        """What `step` gives: one value for each of its outputs (None where one is left out).

        Args:
            step: A step of `program`; control flow runs whole.
            inputs: A value for each input (None where one is left out).
            program: Says which arrays are constants, and the versions of operators.
            captured: A value for each of `step.captured`.

        Raises:
            ParityError: the runtime cannot run the node alone, or fails at it.
        """
        held = {
            index: array
            for index, (name, array) in enumerate(zip(step.inputs, inputs, strict=True))
            if name in program.constants and _is_held(array)
        }
        key: tuple[object, ...] = (
            step.kind,
            tuple(_signature(value, index in held) for index, value in enumerate((*inputs, *captured))),
        )
        if key in self._constant:
            key = (*key, *(_content(inputs[index]) for index in self._constant[key]))
        kernel = self._kept.get(key)
        if kernel is None:
            kernel = self._opened(step, inputs, program, captured, held)
            if (
                kernel.held.keys() != held.keys()
            ):  # it takes these as constants alone: another kernel for each value of them
                self._constant[key] = tuple(sorted(kernel.held))
                key = (*key, *(_content(inputs[index]) for index in self._constant[key]))
            self._kept[key] = kernel
            if len(self._kept) > self._limit:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        try:
            return kernel.run(inputs, captured)
        except (MemoryError, KeyboardInterrupt, ParityError):
            raise
        except Exception as error:  # the runtime's own types are children of Exception, every one
            raise _refused(step, "failed at", error) from error

    def _opened(
        self,
        step: Step,
        inputs: Sequence[Value],
        program: Program,
        captured: Sequence[Value],
        held: dict[int, np.ndarray],
    ) -> _Kernel:
        elements = sum(value.size for value in inputs if isinstance(value, np.ndarray))
        threads = self._threads if elements >= _SHARED else 1
        try:
            return _Kernel(step, inputs, program, captured, held, threads)
        except Exception as error:
            constants = {
                index: array
                for index, (name, array) in enumerate(zip(step.inputs, inputs, strict=True))
                if name in program.constants
            }
            if constants.keys() == held.keys():
                raise _refused(step, "cannot run", error) from error
        try:
            return _Kernel(step, inputs, program, captured, constants, threads)
        except Exception as error:
            raise _refused(step, "cannot run", error) from error


class Weights:
    """Weights as worlds store them (rounded, scaled), kept for the next sample up to `limit` bytes."""

    def __init__(self, limit: int = _KEPT_WEIGHTS) -> None:
        self._left = limit
        self._kept: dict[object, tuple[np.ndarray, np.ndarray]] = {}

    def changed(self, array: np.ndarray, change: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """`change` of a weight; the array itself where it changes nothing."""
        key = (id(array), change)
        if key in self._kept:
            return self._kept[key][1]
        made = change(array)
        if np.array_equal(made, array):
            made = array  # so that worlds that agree are seen to agree
        if made is array or made.nbytes <= self._left:
            self._left -= 0 if made is array else made.nbytes
            self._kept[key] = (array, made)
        return made


class _Kernel:
    """One session, and how values get into it and out of it."""

    def __init__(
        self,
        step: Step,
        inputs: Sequence[Value],
        program: Program,
        captured: Sequence[Value],
        held: dict[int, np.ndarray],
        threads: int,
    ) -> None:
        import onnxruntime as ort

        self.held = held
        self._fed = [(index, f"::{index}") for index, name in enumerate(step.inputs) if name and index not in held]
        self._outer = list(step.captured.values())
        self._present = [bool(name) for name in step.outputs]
        self._outputs = [f"::out{index}" for index, there in enumerate(self._present) if there]
        # Lists, maps and strings pass through the interface for numpy, which takes them as they are.
        plain = all(
            isinstance(value, np.ndarray) and value.dtype != object
            for value in (*inputs, *captured)
            if value is not None
        )
        message = _message(step, inputs, program, captured, held)
        self._session = ort.InferenceSession(
            message.SerializeToString(), _options(threads), providers=["CPUExecutionProvider"]
        )
        self._types = {value.name: value.type for value in self._session.get_inputs()}
        given = [value.type for value in self._session.get_outputs()]
        self._plain = plain and all(kind.startswith("tensor(") and kind != "tensor(string)" for kind in given)
        self._special = self._plain and any(kind in _ML_TYPES for kind in (*self._types.values(), *given))

    def run(self, inputs: Sequence[Value], captured: Sequence[Value]) -> list[Value]:
        feeds = {name: inputs[index] for index, name in self._fed}
        feeds.update(zip(self._outer, captured, strict=True))
        if self._special or (self._plain and sum(array.nbytes for array in feeds.values()) >= _DIRECT):
            values = {name: _to_runtime(array, self._types[name]) for name, array in feeds.items()}
            found = [_from_runtime(value) for value in self._session.run_with_ort_values(self._outputs, values)]
        else:
            found = self._session.run(self._outputs, feeds)
        if len(found) == len(self._present):
            return list(found)
        rest = iter(found)
        return [next(rest) if there else None for there in self._present]


def _message(
    step: Step,
    inputs: Sequence[Value],
    program: Program,
    captured: Sequence[Value],
    held: dict[int, np.ndarray],
) -> onnx.ModelProto:
    """A model of the one node; its inputs are called `::0`, `::1`, ..., and captured values what the bodies call them."""
    node = ir.serde.serialize_node(step.node)
    del node.input[:], node.output[:], node.metadata_props[:]
    node.input.extend(f"::{index}" if name else "" for index, name in enumerate(step.inputs))
    node.output.extend(f"::out{index}" if name else "" for index, name in enumerate(step.outputs))
    fed = [(f"::{index}", value) for index, value in enumerate(inputs) if step.inputs[index] and index not in held]
    fed += zip(step.captured.values(), captured, strict=True)
    graph = onnx.GraphProto(name="step", node=[node])
    graph.input.extend(declared(name, value) for name, value in fed)
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.output if name)
    graph.initializer.extend(tensor_message(array, f"::{index}") for index, array in held.items())
    opsets = [onnx.OperatorSetIdProto(domain=domain, version=version) for domain, version in program.opsets.items()]
    return onnx.ModelProto(ir_version=program.ir_version, graph=graph, opset_import=opsets)


def open_message(model: onnx.ModelProto, threads: int) -> Any:
    """A session of a small model that shares its memory with all others here."""
    import onnxruntime as ort

    return ort.InferenceSession(model.SerializeToString(), _options(threads), providers=["CPUExecutionProvider"])


def tensor_message(array: np.ndarray, name: str) -> onnx.TensorProto:
    """A constant called `name`, of any element type."""
    if array.dtype == object:
        return numpy_helper.from_array(array, name)
    return ir.serde.serialize_tensor(ir.tensor(array, name=name))


def declared(name: str, value: Value, *, fixed: bool = False) -> onnx.ValueInfoProto:
    """How an input of this kind is declared; `fixed`: with all of its dimensions.

    Raises:
        ParityError: it is neither a tensor nor a sequence.
    """
    if isinstance(value, np.ndarray):
        shape = value.shape if fixed or _is_vector(value) else [None] * value.ndim
        return onnx.helper.make_tensor_value_info(name, _element_type(value), shape)
    if isinstance(value, list):
        kind = onnx.helper.make_tensor_type_proto(_element_type(value[0]) if value else onnx.TensorProto.FLOAT, None)
        return onnx.helper.make_value_info(name, onnx.helper.make_sequence_type_proto(kind))
    raise ParityError(
        f"a {type(value).__name__} cannot be handed from one node to another", fix="cut the model before it"
    )


def _element_type(array: np.ndarray) -> int:
    return int(onnx.TensorProto.STRING if array.dtype == object else ir.DataType.from_numpy(array.dtype))


def _is_vector(value: np.ndarray) -> bool:
    """Whether it is of the kind that shapes and axes are: at most one dimension, of integers."""
    return value.ndim <= 1 and value.dtype.kind in "iu"


def _content(value: Value) -> bytes:
    """What tells an array from every other: its type, shape and a digest of its elements."""
    array = np.ascontiguousarray(value)
    return hashlib.blake2b(array.tobytes()).digest() + str((array.dtype, array.shape)).encode()


def _is_held(value: Value) -> bool:
    if not isinstance(value, np.ndarray):
        return False
    return (value.size <= _HELD and value.dtype.kind in "iub") or value.dtype.name in _PACKED


def _signature(value: Value, held: bool) -> object:  # noqa: FBT001 - called once per input of every step
    if isinstance(value, np.ndarray):
        if held:
            return value.dtype.num, value.shape, value.tobytes()
        shape = value.shape if value.ndim <= 1 and value.dtype.kind in "iu" else value.ndim
        return value.dtype.num, value.dtype.name if value.dtype.kind == "V" else "", shape, value.size >= _SHARED
    if isinstance(value, list):
        return "list", _signature(value[0], False) if value else None
    return type(value).__name__


def _options(threads: int) -> Any:
    import onnxruntime as ort

    share_memory()
    options = ort.SessionOptions()
    options.log_severity_level = _SILENT
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.use_env_allocators", "1")
    for library in libraries(""):
        options.register_custom_ops_library(library)
    return options


def _to_runtime(array: np.ndarray, declared: str) -> Any:
    import onnxruntime as ort

    array = np.asarray(array, order="C")  # not ascontiguousarray, which makes scalars 1-D
    if declared in _ML_TYPES:
        bits = array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint8)
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, _ML_TYPES[declared][1])
    return ort.OrtValue.ortvalue_from_numpy(array)


def _from_runtime(value: Any) -> np.ndarray:
    kind = value.data_type()
    if kind in _ML_TYPES:
        import ctypes

        dtype = numpy_dtype(_ML_TYPES[kind][0])
        shape = tuple(value.shape())
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return np.frombuffer(ctypes.string_at(value._ortvalue.data_ptr(), nbytes), dtype).reshape(shape)  # noqa: SLF001 - the only way to these bytes
    array: np.ndarray = value.numpy()
    return array


def _refused(step: Step, verb: str, error: Exception) -> ParityError:
    message = " ".join(str(error).split())[:400]
    name = step.node.name or step.key
    return ParityError(
        f"ONNX Runtime {verb} {step.op_type} {name!r} alone: {message}",
        where=step.key,
        fix="check that plain ONNX Runtime runs this model on this input",
    )
