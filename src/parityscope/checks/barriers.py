"""The fewest tensors that keep an optimizer's rewrite away, by delta debugging, and the tensors beside one."""

from __future__ import annotations

import itertools
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from parityscope.records import OfferedRepair

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import onnx_ir as ir

    from parityscope.examination import Examination
    from parityscope.records import Trial


def offer_barrier(known: Examination, tensors: Sequence[str], trial: Trial | None = None) -> OfferedRepair:
    """The repair that gives `tensors` back as well, with the command that does it, and what was measured of it."""
    path = Path(known.candidate.option("model") or known.model.path)
    fixed = f"{path.stem}.fixed.onnx"
    # With its type, without which no output is read by everybody; what cannot be inferred is left to the runtime.
    known_types = "{v.name: v for v in onnx.shape_inference.infer_shapes(m).graph.value_info}"
    added = f"m.graph.output.extend(t.get(n, onnx.ValueInfoProto(name=n)) for n in {json.dumps(list(tensors))})"
    lines = (
        f"import onnx; m = onnx.load({json.dumps(str(path))}); t = {known_types}; {added}; "
        f"onnx.save(m, {json.dumps(fixed)})"
    )
    named = " and ".join(_name_tensor(known, one) for one in tensors)
    return OfferedRepair(
        repair="barrier",
        text=f"make {named} one more output of the model, which nobody has to read, so that nothing is fused over it"
        if len(tensors) == 1
        else f"make {named} further outputs of the model, which nobody has to read, so that nothing is fused over them",
        command=f"python -c {shlex.quote(lines)}",
        trial=trial,
    )


def _name_tensor(known: Examination, tensor: str) -> str:
    """A tensor inside of the network by its name and by the node that gives it, which is what its readers know."""
    site = known.places.get(tensor)
    return (
        f"{tensor!r} (which {site.node} gives)" if site is not None and site.node not in {"", tensor} else repr(tensor)
    )


def find_fewest_barriers(
    tensors: Sequence[str], cures: Callable[[Sequence[str]], bool], runs: int
) -> tuple[list[str], int]:
    """A subset of `tensors` that still cures and whose parts do not, and how many runs it took (at most `runs`).

    Zeller and Hildebrandt's ddmin: halves are tried, then what is left without a part, then smaller parts. One barrier among
    n is found in about 2 log2 n runs. `tensors` as a whole must cure. When the runs are spent the set is what was reached.
    """
    chosen, parts, used = list(tensors), 2, 0

    def first(candidates: list[list[str]]) -> list[str] | None:
        nonlocal used
        for one in candidates:
            if used >= runs:
                return None
            used += 1
            if cures(one):
                return one
        return None

    while len(chosen) > 1 and used < runs:
        pieces = _split_evenly(chosen, min(parts, len(chosen)))
        if (found := first(pieces)) is not None:
            chosen, parts = found, 2
            continue
        rests = [[name for name in chosen if name not in piece] for piece in pieces] if len(pieces) > 2 else []
        if (found := first(rests)) is not None:
            chosen, parts = found, max(parts - 1, 2)
            continue
        if parts >= len(chosen):
            break
        parts *= 2
    return chosen, used


def _split_evenly(names: Sequence[str], count: int) -> list[list[str]]:
    """`names` in `count` parts of nearly equal length, in order, none of them empty."""
    edges = [round(place * len(names) / count) for place in range(count + 1)]
    return [list(names[start:end]) for start, end in itertools.pairwise(edges)]


def list_neighbour_tensors(graph: ir.Model, tensor: str) -> list[str]:
    """The other tensors of the nodes that write or read `tensor`, nearest first: of those nodes, then of their neighbours."""
    nodes = [{str(value.name) for value in (*node.inputs, *node.outputs) if value is not None} for node in graph.graph]
    found: dict[str, None] = {tensor: None}
    for _ in range(2):
        reached = set(found)
        for tensors in nodes:
            if tensors & reached:
                found.update(dict.fromkeys(sorted(tensors - reached)))
    return [name for name in found if name != tensor]
