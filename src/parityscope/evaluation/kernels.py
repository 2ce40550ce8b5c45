"""One session of ONNX Runtime over a small graph: how it is opened, and what it is fed.

All sessions take memory from one arena (60 sessions that each ran a tensor of 16 MiB kept 1.0 GB in arenas of their own), and do
not spin: threads that spin steal the processors from the next session (20 to 80 times slower on two cores).

This is the one file of the package beside the backends that imports a runtime: the evaluator's arithmetic *is* ONNX Runtime's.
"""

from __future__ import annotations

from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from parityscope.custom_operators import libraries_for_session
from parityscope.errors import ParityError
from parityscope.evaluation.machine import share_memory
from parityscope.evaluation.values import ML_TYPES, from_runtime, to_runtime

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from parityscope.evaluation.program import Program

    Value = Any  # an array, a list of arrays (a sequence), a dict (a map) or None (an empty optional)

_DIRECT = 1 << 18  # bytes: from here on what a run gives is not copied, which costs 30 microseconds more to ask for
_SHARED = 1 << 10  # bytes, chosen: what shapes and axes are stays in the message, where the runtime looks for it
_NBYTES = attrgetter("nbytes")
_SILENT = 4  # the runtime's severity "fatal": what it calls an error is raised too, and told once

PACKED = frozenset({"float4_e2m1fn", "int2", "int4", "uint2", "uint4"})  # several elements a byte: in files alone


class SessionKernel:
    """A graph that is fed values by name and gives those of its outputs, in order.

    Args:
        graph: Has no declared inputs.
        fed: A value of each kind that it will be fed, by name.
        held: Values that it holds itself, by name.
        program: Says the versions of operators.
        threads: 1 for the caller's alone.
        copied: Whether what it holds may be copied, and brought into the order in which products read it; else it is shared
            with all who hold it.

    Raises:
        Exception: the runtime refuses the graph (its own types of errors), or a value cannot be handed to it.
    """

    def __init__(
        self,
        graph: onnx.GraphProto,
        fed: Mapping[str, Value],
        held: Mapping[str, np.ndarray],
        program: Program,
        threads: int,
        *,
        copied: bool = True,
    ) -> None:
        message = onnx.GraphProto()
        message.CopyFrom(graph)
        message.input.extend(declare_input(name, value) for name, value in fed.items())
        large = {
            name: array
            for name, array in held.items()
            if array.nbytes >= (_DIRECT if copied else _SHARED) and array.dtype.name not in PACKED
        }
        message.initializer.extend(
            _placeholder(array, name) if name in large else tensor_message(array, name) for name, array in held.items()
        )
        opsets = [onnx.OperatorSetIdProto(domain=domain, version=version) for domain, version in program.opsets.items()]
        model = onnx.ModelProto(ir_version=program.ir_version, graph=message, opset_import=opsets)
        self.threads = threads
        self._session = open_message(model, threads, large, prepacked=copied)
        # The runtime's wrapper looks at all inputs in each call, which takes as long as a small node.
        self._run = vars(self._session).get("_sess", self._session).run
        self._outputs = [value.name for value in graph.output]
        self._types = {value.name: value.type for value in self._session.get_inputs()}
        given = [value.type for value in self._session.get_outputs()]
        # Lists, maps and strings pass through the interface for numpy, which takes them as they are.
        self._plain = _are_plain(fed.values()) and all(
            kind.startswith("tensor(") and kind != "tensor(string)" for kind in given
        )
        self._special = self._plain and any(kind in ML_TYPES for kind in (*self._types.values(), *given))

    def run(self, feeds: Mapping[str, Value]) -> list[Value]:
        """The outputs; raises what the runtime raises."""
        if self._special or (self._plain and sum(map(_NBYTES, feeds.values())) >= _DIRECT):
            values = {name: to_runtime(array, self._types[name]) for name, array in feeds.items()}
            return [from_runtime(value) for value in self._session.run_with_ort_values(self._outputs, values)]
        found: list[Value] = self._run(self._outputs, feeds, None)
        return found


def _are_plain(values: Iterable[Value]) -> bool:
    return all(isinstance(value, np.ndarray) and value.dtype != object for value in values if value is not None)


def open_message(
    model: onnx.ModelProto,
    threads: int,
    given: Mapping[str, np.ndarray] = MappingProxyType({}),
    *,
    prepacked: bool = True,
) -> Any:
    """A session of a small model that shares its memory with all others here; `given` are initializers that lie elsewhere.

    `prepacked`: products may keep their weights once more, in the order in which they read them.
    """
    import onnxruntime as ort

    options = _session_options(threads)
    if not prepacked:
        options.add_session_config_entry("session.disable_prepacking", "1")
    if given:
        options.add_external_initializers([*given], [to_runtime(array, "") for array in given.values()])
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _placeholder(array: np.ndarray, name: str) -> onnx.TensorProto:
    """An initializer whose elements are given when the session is opened: a message would copy them four times."""
    tensor = onnx.TensorProto(name=name, dims=array.shape, data_type=_element_type(array))
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=name)
    return tensor


def tensor_message(array: np.ndarray, name: str) -> onnx.TensorProto:
    """A constant called `name`, of any element type."""
    if array.dtype.isbuiltin == 1:
        return numpy_helper.from_array(array, name)
    # Not `ir.tensor`: what that takes besides arrays takes long to look for.
    return ir.serde.serialize_tensor(ir.Tensor(array, name=name))


def declare_input(name: str, value: Value, *, fixed: bool = False) -> onnx.ValueInfoProto:
    """How an input of this kind is declared; `fixed`: with all of its dimensions.

    Raises:
        ParityError: it is neither a tensor nor a sequence.
    """
    if isinstance(value, np.ndarray):
        shape = value.shape if fixed or is_vector(value) else [None] * value.ndim
        return onnx.helper.make_tensor_value_info(name, _element_type(value), shape)
    if isinstance(value, list):
        kind = onnx.helper.make_tensor_type_proto(_element_type(value[0]) if value else onnx.TensorProto.FLOAT, None)
        return onnx.helper.make_value_info(name, onnx.helper.make_sequence_type_proto(kind))
    raise ParityError(
        f"a {type(value).__name__} cannot be handed from one node to another", fix="cut the model before it"
    )


def _element_type(array: np.ndarray) -> int:
    return int(onnx.TensorProto.STRING if array.dtype == object else ir.DataType.from_numpy(array.dtype))


def is_vector(value: np.ndarray) -> bool:
    """Whether it is of the kind that shapes and axes are: at most one dimension, of integers."""
    return value.ndim <= 1 and value.dtype.kind in "iu"


def _session_options(threads: int) -> Any:
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
    for library in libraries_for_session(""):
        options.register_custom_ops_library(library)
    return options
