"""Recurrent operators: OpenVINO goes over batches first and has gates in another order; its bias is the sum of ONNX's two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends.openvino_ir.writing import UntranslatedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.backends.openvino_ir.operators import Translator
    from parityscope.backends.openvino_ir.translating import OpenvinoNode
    from parityscope.backends.openvino_ir.writing import OnnxWriter

__all__ = ["RECURRENT"]

# Of each gate of ONNX's, its place in OpenVINO's: LSTM is iofc there and fico here, GRU zrh in both.
_GATES = {"LSTMSequence": ("LSTM", (1, 3, 0, 2)), "GRUSequence": ("GRU", (0, 1, 2)), "RNNSequence": ("RNN", (0,))}
_DIRECTIONS = {"forward": "forward", "reverse": "reverse", "bidirectional": "bidirectional"}


def _write_sequence(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    """X (B, T, I), states (B, D, H) and lengths (B) -> Y (B, D, T, H) and the last states (B, D, H)."""
    op_type, order = _GATES[node.kind]
    states = 2 if op_type == "LSTM" else 1
    x, *rest = node.inputs
    given, (lengths, weight, recurrence, bias) = rest[:states], rest[states : states + 4]
    usual = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"], "RNN": ["tanh"]}[op_type]
    if [one.lower() for one in node.get_attribute("activations", usual)] != usual:
        raise UntranslatedError("activations of its own")
    reset = int(bool(node.get_attribute("linear_before_reset", False)))
    arranged = [_arrange_gates(write, name, order) for name in (weight, recurrence)]
    turned = [write.emit_one("Transpose", name, perm=[1, 0, 2]) for name in (x, *given)]
    clip = float(node.get_attribute("clip", 0.0))
    made = write.emit(
        op_type,
        [
            turned[0],
            *arranged,
            _both_biases(write, bias, order, reset=reset),
            _read_as_int32(write, node, lengths),
            *turned[1:],
        ],
        outputs=1 + states,
        hidden_size=int(node.get_attribute("hidden_size")),
        direction=_DIRECTIONS[str(node.get_attribute("direction")).lower()],
        clip=clip or None,
        linear_before_reset=reset if op_type == "GRU" else None,
    )
    whole = write.emit_one("Transpose", made[0], perm=[2, 1, 0, 3])
    return [whole, *(write.emit_one("Transpose", name, perm=[1, 0, 2]) for name in made[1:])]


def _arrange_gates(write: OnnxWriter, name: str, order: tuple[int, ...]) -> str:
    """Gates along axis 1 in the order of ONNX's."""
    if list(order) == sorted(order):
        return name
    parts = write.emit("Split", [name], outputs=len(order), axis=1, **_equal_parts(write, len(order)))
    return write.emit_one("Concat", *(parts[place] for place in order), axis=1)


def _equal_parts(write: OnnxWriter, count: int) -> Mapping[str, int]:
    return {"num_outputs": count} if write.opset >= 18 else {}


def _both_biases(write: OnnxWriter, bias: str, order: tuple[int, ...], *, reset: int) -> str:
    """The one bias as that of inputs, and zeros as that of states; a GRU that resets behind its product has one of each there."""
    if reset:
        parts = write.emit("Split", [bias], outputs=4, axis=1, **_equal_parts(write, 4))
        nought = write.emit_one("Mul", parts[0], write.add_constant(np.float32(0)))
        return write.emit_one("Concat", *parts[:3], nought, nought, parts[3], axis=1)
    arranged = _arrange_gates(write, bias, order)
    return write.emit_one(
        "Concat", arranged, write.emit_one("Mul", arranged, write.add_constant(np.float32(0))), axis=1
    )


def _read_as_int32(write: OnnxWriter, node: OpenvinoNode, name: str) -> str:
    return name if node.in_type(node.inputs.index(name)) == "i32" else write.emit_one("Cast", name, to=6)


RECURRENT: Mapping[str, Translator] = dict.fromkeys(_GATES, _write_sequence)
