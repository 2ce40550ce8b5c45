"""A graph cut into stretches that run one after another, each giving back all of its tensors.

In: a graph, and its tensors in chunks that fit in memory. Out: one session for each chunk, which computes its tensors from
what earlier chunks gave back. So all tensors of a network are seen for the price of one run, whatever the memory,
and what a tensor of an earlier chunk is needed for no longer is dropped.

A tensor is taken from an earlier chunk as it was given back there. What a chunk needs of earlier ones and cannot take so
(values without a known type; numbers before they were rounded) it computes again. What the model types as float16 is
really that when it is taken over; inside one session ONNX Runtime computes it in float32 on a CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from parityscope.arithmetic._graphs import bodies, feed
from parityscope.arithmetic.element_types import infer_types
from parityscope.backends._onnxruntime import open_session
from parityscope.case.deriving import subgraph

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from parityscope.backends._ort_running import Run

    Arrays = Mapping[str, np.ndarray]

__all__ = ["HELD_SUFFIX", "Segment", "segments"]

HELD_SUFFIX = "::held"


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One stretch: `reads` are the tensors of earlier stretches that it needs, `gives` those that it gives back."""

    run: Run
    reads: tuple[str, ...]
    gives: tuple[str, ...]

    def compute(self, feeds: Arrays, held: Arrays) -> dict[str, np.ndarray]:
        """The tensors of this stretch, from the model's inputs and what earlier stretches gave."""
        return self.run({**feeds, **{name + HELD_SUFFIX: held[name] for name in self.reads}})


def segments(
    model: ir.Model, chunks: Sequence[Sequence[str]], ranks: Mapping[str, int], folder: Path | None
) -> list[Segment]:
    """The stretches of `model` (edited in place), one for each of `chunks`, which name its tensors in graph order.

    `ranks` are the tensors' numbers of dimensions; one that is not there is not taken over from an earlier stretch.

    Raises:
        ParityError: the runtime refuses a stretch.
    """
    infer_types(model)
    chunk_of = {name: number for number, chunk in enumerate(chunks) for name in chunk}
    _cut(model, chunk_of, ranks)
    found = []
    for chunk in chunks:
        part = subgraph(model, chunk)
        inputs = [str(value.name) for value in part.graph.inputs]
        reads = tuple(name.removesuffix(HELD_SUFFIX) for name in inputs if name.endswith(HELD_SUFFIX))
        found.append(Segment(run=open_session(part, folder=folder), reads=reads, gives=tuple(chunk)))
    return found


def _cut(model: ir.Model, chunk_of: Mapping[str, int], ranks: Mapping[str, int]) -> None:
    """Lets nodes of other chunks read a tensor from a graph input."""
    graph = model.graph
    outermost = {inner: node for node in graph for inner in (node, *_inner_nodes(node))}
    chunks = _chunks_of_nodes(graph, chunk_of, outermost)
    for node in list(graph):
        for value in node.outputs:
            name = str(value.name)
            if name not in chunk_of or name not in ranks or not isinstance(value.type, ir.TensorType):
                continue
            far = [use for use in value.uses() if chunks.get(outermost[use[0]]) != chunk_of[name]]
            if far:
                held = ir.Value(name=name + HELD_SUFFIX, shape=ir.Shape([None] * ranks[name]), type=value.type)
                graph.inputs.append(held)
                feed(far, held)


def _chunks_of_nodes(
    graph: ir.Graph, chunk_of: Mapping[str, int], outermost: Mapping[ir.Node, ir.Node]
) -> dict[ir.Node, int]:
    """The chunk in which each node runs first: that of its own tensors, or of its first reader."""
    found: dict[ir.Node, int] = {}
    for node in reversed(list(graph)):
        mine = [chunk_of[str(value.name)] for value in node.outputs if value.name in chunk_of]
        if not mine:
            readers = (outermost[user] for value in node.outputs for user, _ in value.uses())
            mine = [found[reader] for reader in readers if reader in found]
        if mine:
            found[node] = min(mine)
    return found


def _inner_nodes(node: ir.Node) -> Iterator[ir.Node]:
    for body in bodies(node):
        for inner in body:
            yield inner
            yield from _inner_nodes(inner)
