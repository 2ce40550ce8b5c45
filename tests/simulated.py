"""A precision's simulation of a network, as tests ask for it: what is rounded, by name, and a run of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.arithmetic.simulation import arrange_precision
from parityscope.case.graph import constant_value
from parityscope.evaluation.simulating import open_simulation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import onnx_ir as ir

    from parityscope.arithmetic.simulation import Arrangement
    from parityscope.records import Skip


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """What `arrange_precision` found. Each of the names has the short name of its format."""

    found: Arrangement

    @property
    def notes(self) -> tuple[Skip, ...]:
        return self.found.notes

    @property
    def model(self) -> ir.Model:
        """The FP32 graph beside which values are rounded."""
        return self.found.model

    @property
    def tensors(self) -> dict[str, str]:
        """What is stored rounded and anything reads so."""
        return dict(self._stored(constant=False))

    @property
    def weights(self) -> dict[str, str]:
        return {**dict(self._stored(constant=True)), **dict(self._read(constant=True))}

    @property
    def operands(self) -> dict[str, str]:
        """What products take rounded, besides weights."""
        return dict(self._read(constant=False))

    def __call__(
        self, feeds: Mapping[str, Any], names: Sequence[str] | None = None, threads: int = 1
    ) -> dict[str, np.ndarray]:
        """The values called `names`, or the outputs."""
        return open_simulation(self.found, names, threads=threads)({key: np.asarray(one) for key, one in feeds.items()})

    def _stored(self, *, constant: bool) -> Iterator[tuple[str, str]]:
        plan = self.found.plan
        for value, number_format in plan.storage.items():
            used = not value.uses() or value.is_graph_output() or any(plan.reads_rounded(*use) for use in value.uses())
            if used and (constant_value(value) is not None) == constant:
                yield str(value.name), number_format.name

    def _read(self, *, constant: bool) -> Iterator[tuple[str, str]]:
        for (node, index), number_format in self.found.plan.operands.items():
            value = node.inputs[index]
            if value is not None and (constant_value(value) is not None) == constant:
                yield str(value.name), number_format.name


def simulate(model: ir.Model, precision: str, **options: Any) -> Simulation:
    """The model in a precision; `options` are those of `arrange_precision`."""
    return Simulation(found=arrange_precision(model, precision, **options))


def detype(model: ir.Model) -> Simulation:
    """The model as its own types say."""
    return Simulation(found=arrange_precision(model, None))
