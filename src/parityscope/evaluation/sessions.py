"""Sessions of ONNX Runtime that each run one node, shared by all nodes that do the same.

A session of one node depends on the *kind* of its step (operator, attributes) and on the element types and ranks of what it is
given; weights are fed like all other inputs, so that a hundred equal layers share one session and no weight is copied. Vectors of
integers (shapes, axes, sizes) are declared with their length, which Resize, Slice and Pad want, and small constant ones are held
by the session. What an operator takes as a constant alone is held too, where it refuses to be opened otherwise, and so is what
its kernel packs: a table of four bits that is fed is decoded to float32, whole and in each run (2.2 GB and 13 s for a head of
272 MB that took 0.3 s when it was held).

At most `LIMIT` of these are kept, least used first to go. Stretches of several steps are `joining`'s.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import onnx
import onnx_ir as ir

from parityscope.arithmetic.sites import PRODUCTS
from parityscope.errors import ParityError
from parityscope.evaluation.joining import Joins
from parityscope.evaluation.kernels import PACKED, SessionKernel
from parityscope.evaluation.machine import Threads
from parityscope.operators import OPERATORS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from parityscope.evaluation.kernels import Value
    from parityscope.evaluation.program import Program, ProgramStep
    from parityscope.evaluation.stretches import Course

LIMIT = 400  # chosen: a session costs about 60 kB; the networks at hand have 11 to 118 kinds of nodes
_PACKS = {one.name: one.packs for one in OPERATORS.values() if one.packs}
_HELD = 64  # elements: integer constants up to this size are part of the session
_MANY = 1 << 14  # elements, chosen: inputs of more and of fewer get sessions of their own, since these may get threads
_REFUSALS = 1 << 14  # chosen: an entry is a node's message; a search asks for some of the same nodes hundreds of times
_KEPT_WEIGHTS = 1 << 28  # bytes, chosen: weights that are rounded are kept for the next sample up to this


class NotAloneError(ParityError):
    """The runtime refuses a step on its own."""

    def __init__(self, problem: str, program: Program, first: int, last: int, where: str) -> None:
        super().__init__(problem, where=where, fix="check that plain ONNX Runtime runs this model on this input")
        self.program, self.first, self.last = program, first, last


class Sessions:
    """Runs steps, and keeps what it opened for that. Not for two threads at once."""

    def __init__(self, *, threads: int = 2, limit: int = LIMIT) -> None:
        self._threads = Threads(threads)
        self._limit = limit
        self._kept: OrderedDict[object, _One] = OrderedDict()
        self._constant: dict[object, tuple[int, ...]] = {}
        # What the runtime would not open, with its words and the constants that it was tried with.
        self._refused: dict[object, tuple[str, Sequence[np.ndarray]]] = {}
        self.joins = Joins(self._threads)
        self.courses: WeakKeyDictionary[Program, dict[object, Course]] = WeakKeyDictionary()
        self.together: WeakKeyDictionary[Program, dict[int, int]] = WeakKeyDictionary()
        self.weights = StoredWeights()

    def __len__(self) -> int:
        """How many are open."""
        return len(self._kept) + len(self.joins)

    def clear(self) -> None:
        """Closes what is open, and forgets the weights that were changed."""
        self._kept.clear()
        self._refused.clear()
        self._threads.given = 0
        self.joins.clear()
        self.courses.clear()
        self.forget_weights()

    def forget_weights(self) -> None:
        """Forgets the weights that were changed; sessions stay open."""
        self.weights = StoredWeights()

    def run(
        self, step: ProgramStep, inputs: Sequence[Value], program: Program, captured: Sequence[Value] = ()
    ) -> list[Value]:
        """What `step` gives: one value for each of its outputs (None where one is left out).

        Args:
            step: A step of `program`; control flow runs whole.
            inputs: A value for each input (None where one is left out).
            program: Says which arrays are constants, and the versions of operators.
            captured: A value for each of `step.captured`.

        Raises:
            ParityError: the runtime cannot run the node alone, or fails at it.
        """
        constants, held, packed = program.constants, {}, _PACKS.get(step.op_type, ())
        signatures: list[object] = [step.kind]
        for index, (name, value) in enumerate(zip(step.inputs, inputs, strict=True)):
            is_held = name in constants and (_is_held(value) or index in packed)
            if is_held:
                held[index] = value
            signatures.append(_value_signature(value, is_held))
        if captured:
            signatures += [_value_signature(value, False) for value in captured]
        key = tuple(signatures)
        if key in self._constant:
            key = (*key, *(_content_key(inputs[index]) for index in self._constant[key]))
        kernel = self._kept.get(key)
        if kernel is None:
            kernel = self._open_kernel(key, step, inputs, program, captured, held)
            if (
                kernel.held.keys() != held.keys()
            ):  # it takes these as constants alone: another kernel for each value of them
                self._constant[key] = tuple(sorted(kernel.held))
                key = (*key, *(_content_key(inputs[index]) for index in self._constant[key]))
            self._kept[key] = kernel
            if len(self._kept) > self._limit:
                _, oldest = self._kept.popitem(last=False)
                self._threads.give_back(oldest.threads)
        else:
            self._kept.move_to_end(key)
        try:
            return kernel.run(inputs, captured)
        except (MemoryError, KeyboardInterrupt, ParityError):
            raise
        except Exception as error:  # the runtime's own types are children of Exception, every one
            raise _refusal_error(step, "failed at", error) from error

    def _open_kernel(
        self,
        key: object,
        step: ProgramStep,
        inputs: Sequence[Value],
        program: Program,
        captured: Sequence[Value],
        held: dict[int, np.ndarray],
    ) -> _One:
        constants = {
            index: array
            for index, (name, array) in enumerate(zip(step.inputs, inputs, strict=True))
            if name in program.constants
        }
        tried = key, tuple((index, id(array)) for index, array in constants.items())
        if tried in self._refused:
            raise _refused_alone(step, program, self._refused[tried][0])
        elements = sum(value.size for value in inputs if isinstance(value, np.ndarray))
        threads = self._threads.take(elements, heavy=step.op_type in PRODUCTS)
        try:
            return _One(step, inputs, program, captured, held, threads)
        except Exception as error:
            if constants.keys() == held.keys():
                raise self._note_refusal(tried, constants, step, program, error) from error
        try:
            return _One(step, inputs, program, captured, constants, threads)
        except Exception as error:
            raise self._note_refusal(tried, constants, step, program, error) from error

    def _note_refusal(
        self, tried: object, constants: dict[int, np.ndarray], step: ProgramStep, program: Program, error: Exception
    ) -> NotAloneError:
        """The error; the same will not be tried again: a refusal takes as long as an opening."""
        if not isinstance(error, MemoryError):
            if len(self._refused) >= _REFUSALS:
                self._refused.clear()
            # The arrays are kept so that no other gets their numbers.
            self._refused[tried] = str(error), tuple(constants.values())
        return _refused_alone(step, program, str(error))


class StoredWeights:
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


class _One:
    """A kernel of one node; its inputs are called `::0`, `::1`, ..., and captured values what the bodies call them."""

    def __init__(
        self,
        step: ProgramStep,
        inputs: Sequence[Value],
        program: Program,
        captured: Sequence[Value],
        held: dict[int, np.ndarray],
        threads: int,
    ) -> None:
        self.held = held
        self._fed = [(index, f"::{index}") for index, name in enumerate(step.inputs) if name and index not in held]
        self._outer = list(step.captured.values())
        self._present = [bool(name) for name in step.outputs]
        node = ir.serde.serialize_node(step.node)
        del node.input[:], node.output[:], node.metadata_props[:]
        node.input.extend(f"::{index}" if name else "" for index, name in enumerate(step.inputs))
        node.output.extend(f"::out{index}" if name else "" for index, name in enumerate(step.outputs))
        graph = onnx.GraphProto(name="step", node=[node])
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.output if name)
        kept = {f"::{index}": array for index, array in held.items()}
        self.threads = threads
        self._kernel = SessionKernel(graph, self._feeds_by_name(inputs, captured), kept, program, threads)

    def run(self, inputs: Sequence[Value], captured: Sequence[Value]) -> list[Value]:
        """The results, None for one that is left out."""
        found = self._kernel.run(self._feeds_by_name(inputs, captured))
        if len(found) == len(self._present):
            return found
        rest = iter(found)
        return [next(rest) if there else None for there in self._present]

    def _feeds_by_name(self, inputs: Sequence[Value], captured: Sequence[Value]) -> dict[str, Value]:
        feeds = {name: inputs[index] for index, name in self._fed}
        if self._outer:
            feeds.update(zip(self._outer, captured, strict=True))
        return feeds


def _content_key(value: Value) -> bytes:
    """What tells an array from every other: its type, shape and a digest of its elements."""
    array = np.ascontiguousarray(value)
    return hashlib.blake2b(array.tobytes()).digest() + str((array.dtype, array.shape)).encode()


def _is_held(value: Value) -> bool:
    if not isinstance(value, np.ndarray):
        return False
    if value.dtype.kind == "V":  # none of numpy's own; their names take long to ask for
        return value.dtype.name in PACKED
    return value.size <= _HELD and value.dtype.kind in "iub"


def _value_signature(value: Value, held: bool) -> object:  # noqa: FBT001 - called once per input of every step
    if isinstance(value, np.ndarray):
        if held:
            # A large one is itself: the session that holds it keeps it, so that no other gets its number.
            return value.dtype.num, value.shape, value.tobytes() if value.size <= _HELD else id(value)
        dtype, ndim = value.dtype, value.ndim
        kind = dtype.kind
        if kind == "f":
            return (dtype.num << 8 | ndim) << 1 | (value.size >= _MANY)
        shape = value.shape if ndim <= 1 and kind in "iu" else ndim
        return dtype.num, dtype.name if kind == "V" else "", shape, value.size >= _MANY
    if isinstance(value, list):
        return "list", _value_signature(value[0], False) if value else None
    return type(value).__name__


def _refused_alone(step: ProgramStep, program: Program, error: str) -> NotAloneError:
    return NotAloneError(_describe_refusal(step, "cannot run", error), program, step.index, step.index, step.key)


def _refusal_error(step: ProgramStep, verb: str, error: Exception) -> ParityError:
    return ParityError(
        _describe_refusal(step, verb, str(error)),
        where=step.key,
        fix="check that plain ONNX Runtime runs this model on this input",
    )


def _describe_refusal(step: ProgramStep, verb: str, error: str) -> str:
    message = " ".join(error.split())[:400]
    return f"ONNX Runtime {verb} {step.op_type} {step.node.name or step.key!r} alone: {message}"
