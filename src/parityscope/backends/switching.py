"""Evaluates precision assignments: one ONNX Runtime session of a switchable graph, and any assignment as an input.

`Switchboard(model, "f16").run(sample, {"conv1", "fc"})` gives the outputs with these nodes in FP16 and all others in
FP32. One more assignment costs one run of the graph, and nothing is built or loaded again.

ONNX Runtime's optimizer is off by default: next to nothing can be optimized across branches, and without it a run with
nothing low equals the plain model bit for bit, and one with everything low the simulation.
"""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.switchable import FLAGS, Switchable, switchable
from parityscope.backends._onnxruntime import open_session
from parityscope.backends._operators import library

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    import onnx_ir as ir

    from parityscope.arithmetic.float8 import Scalings
    from parityscope.arithmetic.rounding import Overflow
    from parityscope.backends._ort_running import Run
    from parityscope.case import Sample

__all__ = ["Switchboard"]


class Switchboard:
    """A session of the switchable graph of a model.

    Args:
        model: The graph; it is not changed but for its order.
        precision: The format that nodes are switched to, e.g. "f16".
        overflow: As for `simulate`.
        bounded: As for `simulate`.
        threads: Threads inside an operator; 0 leaves it to the runtime.
        optimization: ONNX Runtime's level ("disabled", "basic", "extended" or "all").
        folder: Where external data of the model lies.
        products: As for `switchable`.
        full: As for `switchable`.
        inside: As for `switchable`.

    Raises:
        ParityError: the format cannot be simulated, or the runtime refuses the graph.
    """

    def __init__(
        self,
        model: ir.Model,
        precision: str,
        *,
        overflow: Overflow = "infinity",
        bounded: bool = True,
        threads: int = 0,
        optimization: str = "disabled",
        folder: Path | None = None,
        products: Mapping[str, Scalings] = MappingProxyType({}),
        full: str = "f32",
        inside: bool = False,
    ) -> None:
        self.graph: Switchable = switchable(
            model,
            precision,
            overflow=overflow,
            bounded=bounded,
            compiled=bool(library()),
            products=products,
            full=full,
            inside=inside,
        )
        self._open = partial(open_session, self.graph.model, threads=threads, optimization=optimization, folder=folder)
        self._run: Run | None = self._open()

    def close(self) -> None:
        """Gives back the memory of the session, which the next run opens again."""
        self._run = None

    def run(self, sample: Sample, low: Collection[str] | np.ndarray) -> dict[str, np.ndarray]:
        """The outputs on one sample with the nodes of `low` in the format.

        Args:
            sample: The model's inputs.
            low: Names of nodes, or bool, (nodes,) in the order of `graph.nodes`.

        Raises:
            ParityError: a name is not of a node that can be switched, or the runtime fails.
        """
        assignment = low if isinstance(low, np.ndarray) else self.graph.assignment(low)
        if self._run is None:
            self._run = self._open()
        return self._run({**sample.arrays, FLAGS: self.graph.flags(assignment)})
