"""Running a session of ONNX Runtime: numpy arrays in, numpy arrays out, and its refusals as errors to act on.

Arrays of bfloat16 and float8 are those of ml_dtypes. Results are views of the runtime's own memory (no copy), freed
when the last array is dropped, but for outputs that are inputs as well: those are copies.

How long a run of ONNX Runtime in this process may take.

A target's `timeout=SECONDS` ends the child that runs it; what is run of its model here (to pair tensors by value) is ended by the
runtime itself, which looks between two nodes whether it is to go on.
"""

from __future__ import annotations

import contextlib
import threading
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.backends.onnxruntime_providers import check_loaded
from parityscope.errors import ParityError
from parityscope.evaluation.values import ML_TYPES, from_runtime, to_runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Run = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]

_seconds: ContextVar[float | None] = ContextVar("seconds", default=None)
# Types that the runtime's shorter way takes and gives, which copies what it gives: faster for outputs of so many bytes (measured:
# a run of a small network takes 74 us that way and 136 us the other).
_PLAIN = frozenset(f"tensor({name})" for name in ("float", "double", "int64", "int32", "int8", "uint8", "bool"))
_COPIED = 1 << 16
_RUNNING = "ONNX Runtime failed while running the model"


def start_session(
    source: str | bytes,
    options: Any,
    providers: Sequence[Any],
    outputs: tuple[str, ...],
    kept: Mapping[str, Any] = MappingProxyType({}),
    bound: str = "",
) -> Run:
    """A session as a function that gives the values `outputs`.

    Args:
        source: The path of a model, or its bytes.
        options: The runtime's session options.
        providers: Execution providers, first choice first.
        outputs: Names of the values to give back.
        kept: Weights that the runtime may read where they lie; they live as long as the function.
        bound: The device ("cuda:0") that tensors are bound to before a run; "" for none.

    Raises:
        ParityError: the runtime refuses the model; the function raises it where a run fails.
    """
    import onnxruntime as ort

    with _turn_refusals_into_errors("ONNX Runtime cannot load the model", source if isinstance(source, str) else ""):
        session = ort.InferenceSession(source, options, providers=list(providers))
    check_loaded(providers, session.get_providers())
    session.disable_fallback()  # it would go on with the CPU's provider where a run on the GPU fails
    declared = {value.name: value.type for value in session.get_inputs()}
    alive = (session, kept)
    asked = list(outputs)
    known = {*declared.values(), *(value.type for value in session.get_outputs())}
    # What numpy has no type for is handed over as an OrtValue, of which no text can be made.
    plain = "tensor(string)" in declared.values() or (not bound and known <= _PLAIN)
    copied = "tensor(string)" in declared.values()

    def run(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        nonlocal copied
        if copied:
            given = {
                name: np.asarray(array, object if declared[name] == "tensor(string)" else None, order="C")
                for name, array in arrays.items()
                if name in declared
            }
            if (
                not _is_limited()
            ):  # small networks are asked thousands of times, and contexts would take as long as a run
                try:
                    return dict(zip(outputs, alive[0].run(asked, given), strict=True))
                except Exception as error:
                    raise _error_of_refusal(error, _RUNNING, "") from error
            with _turn_refusals_into_errors(_RUNNING, ""), _ended_in_time() as limit:
                return dict(zip(outputs, alive[0].run(asked, given, limit), strict=True))
        feeds = {name: runtime_value(array, declared[name]) for name, array in arrays.items() if name in declared}
        with _turn_refusals_into_errors(_RUNNING, ""), _ended_in_time() as limit:
            values = (
                _run_bound(alive[0], outputs, feeds, bound, limit)
                if bound
                else alive[0].run_with_ort_values(asked, feeds, limit)
            )
        found = {name: _tensor_of_value(value) for name, value in zip(outputs, values, strict=True)}
        copied = plain and sum(array.nbytes for array in found.values()) <= _COPIED
        # An output that is an input is a view of the caller's memory, or of a copy that ends with this function.
        return {name: array.copy() if name in feeds else array for name, array in found.items()}

    return run


def _run_bound(session: Any, outputs: Sequence[str], feeds: Mapping[str, Any], device: str, limit: Any) -> list[Any]:
    """One run with inputs and outputs on `device` ("cuda:0"), as a program that keeps its tensors there does it."""
    kind, _, number = device.partition(":")
    binding = session.io_binding()
    for name, value in feeds.items():
        binding.bind_ortvalue_input(name, value)
    # Elements of types that numpy lacks are read where they lie, which must be the host's memory.
    here = {value.name for value in session.get_outputs() if value.type in ML_TYPES}
    for name in outputs:
        binding.bind_output(name, *(("cpu", 0) if name in here else (kind, int(number))))
    session.run_with_iobinding(binding, limit)
    binding.synchronize_outputs()
    found: list[Any] = list(binding.get_outputs())
    return found


@contextlib.contextmanager
def _turn_refusals_into_errors(problem: str, where: str) -> Iterator[None]:
    """Turns what ONNX Runtime raises (its own exception types, all direct children of Exception) into one error."""
    try:
        yield
    except Exception as error:
        raise _error_of_refusal(error, problem, where) from error


def _error_of_refusal(error: Exception, problem: str, where: str) -> ParityError:
    """The error that says what was refused.

    Raises:
        MemoryError, ParityError: it was no refusal.
    """
    if isinstance(error, MemoryError | ParityError):
        raise error
    message = " ".join(str(error).split())
    return ParityError(f"{problem}: {message[:600]}", where=where, fix=_advice_on_refusal(message))


def _advice_on_refusal(message: str) -> str:
    lowered = message.lower()
    if "not a registered function/op" in lowered or "no schema registered" in lowered:
        return "register the operator: ort?custom_ops=/path/to/library.so, or cut the model before it"
    if "not_implemented" in lowered or "could not find an implementation" in lowered:
        return "this build of ONNX Runtime lacks the operator for this type; try a newer one, or another reference"
    if "fusion/" in lowered:  # a node that the model has not: what the optimizer made of several
        return "ONNX Runtime's optimizer made that node: switch it off in the target (ort?optimization=disabled)"
    if "cannot parse data from external tensors" in lowered:
        return "keep shapes and axes inside the file: onnx.save(..., save_as_external_data=True, size_threshold=1024)"
    if "external data" in lowered:
        return "put the external data file back beside the model"
    if "opset" in lowered or "ir version" in lowered or "ir_version" in lowered:
        return "upgrade onnxruntime, or convert the model to an opset that it knows (onnx.version_converter)"
    return "check that plain ONNX Runtime runs this model on this input"


def runtime_value(array: np.ndarray, declared: str) -> Any:
    """`values.to_runtime`.

    Raises:
        ParityError: the runtime's interface for Python has no such type, such as those of four and two bits.
    """
    with _turn_refusals_into_errors(f"ONNX Runtime takes no {array.dtype} from Python", ""):
        return to_runtime(array, declared)


def _tensor_of_value(value: Any) -> np.ndarray:
    kind = value.data_type()
    if not kind.startswith("tensor("):
        raise ParityError(f"a value of kind {kind} is not a tensor", fix="cut the model before it")
    return from_runtime(value)


@contextlib.contextmanager
def limited_runs(seconds: float | None) -> Iterator[None]:
    """Inside, each run may take at most so long; None is no limit."""
    token = _seconds.set(seconds)
    try:
        yield
    finally:
        _seconds.reset(token)


def _is_limited() -> bool:
    """Whether a run has a limit now."""
    return _seconds.get() is not None


@contextlib.contextmanager
def _ended_in_time() -> Iterator[Any]:
    """The options of one run, or None where it has no limit.

    Raises:
        ParityError: the run was ended because its time was over.
    """
    import onnxruntime as ort

    limit = _seconds.get()
    if limit is None:
        yield None
        return
    options = ort.RunOptions()
    timer = threading.Timer(limit, setattr, (options, "terminate", True))
    timer.start()
    try:
        yield options
    except Exception as error:
        if not options.terminate:
            raise
        fix = "raise timeout= in the target, or look for a loop that does not end"
        raise ParityError(f"a run of the model took longer than {limit:g} s", fix=fix) from error
    finally:
        timer.cancel()
