"""One hypothesis about a stretch, as a record."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from parityscope.hypotheses.from_curves import FittedCurve
    from parityscope.hypotheses.stretch import ComputedStretch

Arrays = Sequence["np.ndarray | None"]
Behind = tuple[tuple[str, tuple["float | np.ndarray", ...]], ...]  # operators with their constants, numbers or arrays


def form_of(words: str) -> str:
    """The words of an edit without their numbers: where one value of an attribute ends the runtime, the next one does too."""
    return re.sub(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?", "#", words)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeAgain:
    """A node of the model done on other tensors, or a node beside it.

    `of` is the first tensor that the model's node gives, `node` the message of another one; without both what it reads is
    handed on. `reads` are the tensors that it reads, by name; a number stands for the first result of an earlier one of several,
    an array for a constant.
    """

    of: str = ""
    node: bytes = b""
    reads: tuple[str | int | np.ndarray, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StretchEdit:
    """The stretch with one change, and what saying it costs.

    Args:
        words: Completes "the layer computes with ...": what is different, with its numbers.
        bits: The length of that: log2 of the alternatives of its kind, 32 for a fitted number.
        at: The step that is changed, its place in the stretch; -1 for the result as a whole.
        node: Takes the place of the step's node: other attributes or another operator.
        opset: The version of the operator set in which the step is meant; None for the model's own.
        before: What the step reads, from what it would read.
        each: The inputs that `before` changes, by place, where it changes each as an array alone.
        after: What the step gives (its first output), from what it would give.
        whole: The stretch's result on one sample, computed in another way.
        reads: Which of its inputs, by place, the step (or `node`) reads, in order; None where that is as it was. Says in a graph
            what `before` does with arrays.
        again: Nodes done on other tensors, of which the last gives the result: what `whole` says, in a graph.
        behind: Operators of one variable put behind the result, with their constants: what `whole` says of it, in a graph.
        numbers: What was fitted, by name.
        pointwise: A tensor that the stretch reads (the result itself where it has no name), and the function of its elements that
            the result becomes: what `whole` says, where it is no more than that and smooth.
        curve: What `whole` says, where that is a curve: it describes, and is no cause.
    """

    words: str
    bits: float
    at: int = -1
    node: onnx.NodeProto | None = None
    opset: int | None = None
    before: Callable[[Arrays], Arrays] | None = None
    each: Mapping[int, Callable[[np.ndarray], np.ndarray]] = field(default_factory=lambda: MappingProxyType({}))
    after: Callable[[np.ndarray], np.ndarray] | None = None
    whole: Callable[[ComputedStretch, int], np.ndarray] | None = None
    reads: tuple[int | None, ...] | None = None
    again: tuple[NodeAgain, ...] = ()
    behind: Behind = ()
    numbers: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    pointwise: tuple[str, Callable[[np.ndarray], np.ndarray]] | None = None
    curve: FittedCurve | None = None

    @property
    def form(self) -> str:
        """The words without their numbers; as `form_of`."""
        return form_of(self.words)

    @property
    def written_node(self) -> bytes:
        """The message of the node that takes the step's place, where that is all that the edit does; empty otherwise."""
        says_all = (self.before is None or self.reads is not None) and (self.after is None or bool(self.behind))
        alone = says_all and self.opset is None and self.whole is None
        return self.node.SerializeToString() if self.node is not None and alone else b""
