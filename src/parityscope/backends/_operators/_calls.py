"""What compiled operators need to call ONNX Runtime's C functions by their addresses: numba intrinsics.

Every argument and result is a 64-bit integer or a pointer, which x86-64's calling convention passes alike. Functions that
give a result through a last pointer are called by `ask*`, which give that result; a status other than success is left to
the runtime, which checks what a kernel gave back.

Source: ONNX Runtime, include/onnxruntime/core/session/onnxruntime_c_api.h.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = [
    "ask1",
    "ask2",
    "ask4",
    "bits",
    "call1",
    "call2",
    "call3",
    "call5",
    "compiled",
    "doubles",
    "integers",
    "numbers",
    "room",
    "scratch",
    "through_half",
]

if TYPE_CHECKING:
    import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

_INT = ir.IntType(64)
_ROOM = 64  # integers; more than a tensor has dimensions
_SCRATCH = 1 << 14  # integers: 64 KiB, of the stack
_intrinsic = cast("Callable[[F], F]", intrinsic)
compiled = cast("Callable[[F], F]", njit)


def _calling(count: int, *, asking: bool) -> Any:
    """A call with `count` arguments, given as a tuple; `asking` adds a pointer to room for a result and gives that."""

    @_intrinsic
    def call(typing: Any, address: Any, arguments: Any) -> Any:  # noqa: ARG001 - numba's interface
        def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:  # noqa: ARG001 - numba's interface
            values = [builder.extract_value(given[1], index) for index in range(count)]
            slot = cgutils.alloca_once_value(builder, ir.Constant(_INT, 0))
            if asking:
                values.append(builder.ptrtoint(slot, _INT))
            function = ir.FunctionType(_INT, [_INT] * len(values)).as_pointer()
            result = builder.call(builder.inttoptr(given[0], function), values)
            return builder.load(slot) if asking else result

        return types.int64(types.int64, arguments), generate

    return call


call1, call2, call3, call5 = (_calling(count, asking=False) for count in (1, 2, 3, 5))
ask1, ask2, ask4 = (_calling(count, asking=True) for count in (1, 2, 4))


def _rooms(size: int) -> Callable[[], int]:
    """The address of room for `size` integers, which lasts as long as the function that asks; one for each place in it."""

    @_intrinsic
    def ask(typing: Any) -> Any:  # noqa: ARG001 - numba's interface
        def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:  # noqa: ARG001 - as above
            return builder.ptrtoint(cgutils.alloca_once(builder, _INT, size=size), _INT)

        return types.int64(), generate

    return cast("Callable[[], int]", ask)


room, scratch = _rooms(_ROOM), _rooms(_SCRATCH)


@_intrinsic
def _through_half(typing: Any, number: Any) -> Any:  # noqa: ARG001 - numba's interface
    """The bits of a float32 converted to float16 and back, by the two instructions that do that."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:  # noqa: ARG001 - numba's interface
        narrow = builder.fptrunc(builder.bitcast(given[0], ir.FloatType()), ir.HalfType())
        return builder.bitcast(builder.fpext(narrow, ir.FloatType()), ir.IntType(32))

    return types.uint32(types.uint32), generate


through_half = cast("Callable[[np.uint32], np.uint32]", _through_half)


def _pointing(kind: Any) -> Any:
    """From an address to a pointer to elements of `kind`."""

    @_intrinsic
    def at(typing: Any, address: Any) -> Any:  # noqa: ARG001 - numba's interface
        target = types.CPointer(kind)

        def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:  # noqa: ARG001 - as above
            return builder.inttoptr(given[0], context.get_value_type(target))

        return target(types.int64), generate

    return at


integers, bits = _pointing(types.int64), _pointing(types.uint32)
numbers, doubles = _pointing(types.float32), _pointing(types.float64)
