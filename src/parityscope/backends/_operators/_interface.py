"""Tells ONNX Runtime of operators that are functions of this process: its C interface for custom operators, by ctypes.

The order of `OrtCustomOp` and the places of functions in `OrtApi` are those of ONNX Runtime's C API version 19
(include/onnxruntime/core/session/onnxruntime_c_api.h), to which later versions only add.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.arithmetic.domain import DOMAIN

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DOMAIN", "Attributes", "Operator", "registering"]

_VERSION = 19
_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_size_t
_FLOAT, _REQUIRED, _VARIADIC, _DEFAULT_MEMORY = 1, 0, 2, 0  # an element type, kinds of input, a kind of memory
_ANY_VERSION = 2**31 - 1
# What compiled kernels call, in the order in which they find the addresses: KernelContext_GetInput, KernelContext_GetOutput,
# GetTensorMutableData, GetTensorTypeAndShape, GetDimensionsCount, GetDimensions, GetTensorShapeElementCount,
# ReleaseTensorTypeAndShapeInfo, KernelContext_ParallelFor, CreateStatus. Byte offsets in OrtApi.
_FOR_KERNELS = (720, 728, 408, 520, 488, 496, 512, 792, 2192, 0)
_CREATE_DOMAIN, _ADD_OPERATOR, _ADD_DOMAIN, _READ_FLOAT, _READ_INT = 208, 216, 224, 680, 688
_API = np.zeros(16, np.int64)

_CALLBACKS = {
    "CreateKernel": (_POINTER, _POINTER, _POINTER, _POINTER),
    "GetName": (_POINTER, _POINTER),
    "GetExecutionProviderType": (_POINTER, _POINTER),
    "GetInputType": (ctypes.c_int, _POINTER, _SIZE),
    "GetInputTypeCount": (_SIZE, _POINTER),
    "GetOutputType": (ctypes.c_int, _POINTER, _SIZE),
    "GetOutputTypeCount": (_SIZE, _POINTER),
    "KernelCompute": (None, _POINTER, _POINTER),
    "KernelDestroy": (),
    "GetInputCharacteristic": (ctypes.c_int, _POINTER, _SIZE),
    "GetOutputCharacteristic": (ctypes.c_int, _POINTER, _SIZE),
    "GetInputMemoryType": (ctypes.c_int, _POINTER, _SIZE),
    "GetVariadicInputMinArity": (ctypes.c_int, _POINTER),
    "GetVariadicInputHomogeneity": (ctypes.c_int, _POINTER),
    "GetVariadicOutputMinArity": (ctypes.c_int, _POINTER),
    "GetVariadicOutputHomogeneity": (ctypes.c_int, _POINTER),
    "CreateKernelV2": (),
    "KernelComputeV2": (),
    "InferOutputShapeFn": (),
    "GetStartVersion": (ctypes.c_int, _POINTER),
    "GetEndVersion": (ctypes.c_int, _POINTER),
    "GetMayInplace": (),
    "ReleaseMayInplace": (),
    "GetAliasMap": (_SIZE, ctypes.POINTER(_POINTER), ctypes.POINTER(_POINTER)),
    "ReleaseAliasMap": (None, _POINTER, _POINTER),
}


class _CustomOp(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), *((name, _POINTER) for name in _CALLBACKS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """Reads the attributes of a node while its kernel is made."""

    info: int

    def integer(self, name: str) -> int:
        """An attribute of type INT.

        Raises:
            KeyError: the node has none of this name.
        """
        found = ctypes.c_int64()
        self._read(_READ_INT, name, found)
        return found.value

    def number(self, name: str) -> float:
        """An attribute of type FLOAT; raises as `integer` does."""
        found = ctypes.c_float()
        self._read(_READ_FLOAT, name, found)
        return found.value

    def _read(self, offset: int, name: str, found: Any) -> None:
        read = ctypes.CFUNCTYPE(_POINTER, _POINTER, ctypes.c_char_p, _POINTER)(_function(offset))
        if read(self.info, name.encode(), ctypes.addressof(found)):
            raise KeyError(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator on float32 tensors. Of `aliases` each is (input, output): the output is the input's memory.

    `variadic`: its one input and its one output stand for any number of them.
    `compute` is the address of its kernel (see `_rounding.compute`). `state` says what the kernel of a node is given: int64,
    the first of which becomes the address of the runtime's functions; equal ones become one, which is kept.
    """

    name: str
    inputs: int
    outputs: int = 1
    aliases: tuple[tuple[int, int], ...] = ()
    variadic: bool = False
    compute: int
    state: Callable[[Attributes], np.ndarray]


_held: dict[bytes, np.ndarray] = {}  # states of kernels; equal ones are shared, so that they are few
_alive: list[Any] = []  # what the runtime points to
_base = 0  # address of OrtApi


def registering(operators: Callable[[], tuple[Operator, ...]]) -> int:
    """The address of a function that registers what `operators` gives with a session's options."""

    def register(options: int, entry: int) -> int | None:
        global _base  # noqa: PLW0603 - the runtime's table is one for the process
        table = ctypes.cast(entry, ctypes.POINTER(_POINTER))[0]
        _base = ctypes.CFUNCTYPE(_POINTER, ctypes.c_uint32)(table or 0)(_VERSION) or 0
        if not _base:
            return None  # too old; the runtime then says that it does not know the operator
        _API[: len(_FOR_KERNELS)] = [_function(offset) for offset in _FOR_KERNELS]
        domain, status = _domain(operators())
        attach = ctypes.CFUNCTYPE(_POINTER, _POINTER, _POINTER)
        found: int | None = status or attach(_function(_ADD_DOMAIN))(options, domain)
        return found

    return _callback((_POINTER, _POINTER, _POINTER), register)


@functools.cache
def _domain(operators: tuple[Operator, ...]) -> tuple[int, int | None]:
    """A domain that holds `operators`, made once for all sessions, and a status (None: all went well)."""
    domain, name = _POINTER(), ctypes.c_char_p(DOMAIN.encode())
    _alive.append(name)
    made = (_POINTER, ctypes.c_char_p, _POINTER)
    status: int | None = ctypes.CFUNCTYPE(*made)(_function(_CREATE_DOMAIN))(name, ctypes.addressof(domain))
    for operator in operators:
        add = ctypes.CFUNCTYPE(_POINTER, _POINTER, _POINTER)(_function(_ADD_OPERATOR))
        status = status or add(domain, ctypes.addressof(_described(operator)))
    return domain.value or 0, status


def _function(offset: int) -> int:
    return ctypes.cast(_base + offset, ctypes.POINTER(_POINTER))[0] or 0


def _callback(kinds: tuple[Any, ...], function: Callable[..., Any]) -> int:
    made = ctypes.CFUNCTYPE(*kinds)(function)
    _alive.append(made)
    return ctypes.cast(made, _POINTER).value or 0


def _described(operator: Operator) -> _CustomOp:
    title = ctypes.c_char_p(operator.name.encode())
    address = ctypes.cast(title, _POINTER).value

    def create(_op: int, _api: int, info: int) -> int:
        state = operator.state(Attributes(info=info))
        state[0] = _API.ctypes.data
        return _held.setdefault(state.tobytes(), state).ctypes.data

    answers: dict[str, Callable[..., Any]] = {
        "CreateKernel": create,
        "GetName": lambda _op: address,
        "GetExecutionProviderType": lambda _op: None,
        "GetInputType": lambda _op, _index: _FLOAT,
        "GetInputTypeCount": lambda _op: operator.inputs,
        "GetOutputType": lambda _op, _index: _FLOAT,
        "GetOutputTypeCount": lambda _op: operator.outputs,
        "GetInputCharacteristic": lambda _op, _index: _VARIADIC if operator.variadic else _REQUIRED,
        "GetOutputCharacteristic": lambda _op, _index: _VARIADIC if operator.variadic else _REQUIRED,
        "GetInputMemoryType": lambda _op, _index: _DEFAULT_MEMORY,
        "GetVariadicInputMinArity": lambda _op: 1,
        "GetVariadicInputHomogeneity": lambda _op: 1,
        "GetVariadicOutputMinArity": lambda _op: 1,
        "GetVariadicOutputHomogeneity": lambda _op: 1,
        "GetStartVersion": lambda _op: 1,
        "GetEndVersion": lambda _op: _ANY_VERSION,
    }
    if operator.aliases:
        pairs = [(ctypes.c_int * len(operator.aliases))(*ends) for ends in zip(*operator.aliases, strict=True)]
        _alive.extend(pairs)

        def aliases(inputs: Any, outputs: Any) -> int:
            inputs[0], outputs[0] = map(ctypes.addressof, pairs)
            return len(operator.aliases)

        answers |= {"GetAliasMap": aliases, "ReleaseAliasMap": lambda _inputs, _outputs: None}
    made = _CustomOp(version=_VERSION)
    for name, answer in answers.items():
        setattr(made, name, _callback(_CALLBACKS[name], answer))
    made.KernelComputeV2 = operator.compute
    # Kernels may be destroyed when there is no Python any more, so this is a function of C that changes nothing.
    made.KernelDestroy = ctypes.cast(ctypes.CDLL(None).labs, _POINTER).value
    _alive.extend((title, made))
    return made
