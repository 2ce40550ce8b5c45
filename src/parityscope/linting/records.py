"""What rules look at: the graph, its nodes with their places, and every constant with its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import onnx_ir as ir

    from parityscope.arithmetic import Format
    from parityscope.arithmetic.scanning import Numbers
    from parityscope.records import Skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A node and where it stands.

    `index` is its topological index in the main graph (that of the control flow it is inside of, otherwise; -1 in a
    function), `inside` the path of nodes and branches that it is inside of ("" in the main graph).
    """

    node: ir.Node
    name: str
    index: int
    inside: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileConstant:
    """An initializer, or the output of a Constant node, in the main graph, a body or a function.

    `dtype` is a numpy or ml_dtypes name. `few` holds the elements where there are at most 4096 of them.
    """

    name: str
    value: ir.Value
    dtype: str
    shape: tuple[int, ...]
    size: int
    numbers: Numbers
    few: np.ndarray | None
    inside: str = ""

    @property
    def scalar(self) -> float | None:
        """The value that all elements have, as float; None when they differ, are many, or are no numbers."""
        if self.few is None or self.few.size == 0 or self.few.dtype.kind in "SUO":
            return None
        flat = self.few.reshape(-1).astype(np.float64)
        same = bool((flat == flat[0]).all()) or bool(np.isnan(flat).all())
        return float(flat[0]) if same else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """A file as rules see it. `typed` are the 16-bit float types that it computes in by itself, if any.

    `places` are all nodes but Constants, in the order of the file; `constants` and `place` are found by identity.
    """

    path: Path
    nbytes: int
    model: ir.Model
    formats: tuple[Format, ...]
    places: tuple[Place, ...]
    constants: tuple[FileConstant, ...]
    typed: frozenset[str]
    skipped: tuple[Skip, ...]
    by_value: Mapping[int, FileConstant]
    by_node: Mapping[int, Place]

    def constant(self, value: ir.Value | None) -> FileConstant | None:
        """The constant that `value` is; None for anything computed or fed."""
        return None if value is None else self.by_value.get(id(value))

    def place(self, node: ir.Node) -> Place:
        """Where `node` stands."""
        return self.by_node[id(node)]

    @property
    def computing(self) -> tuple[Format, ...]:
        """The formats that engines compute whole networks in; FP8 is for the scaled inputs of products only."""
        return tuple(each for each in self.formats if each.bits > 8)

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators; 0 when the file imports none."""
        imports = self.model.opset_imports
        return int(imports.get("", imports.get("ai.onnx", 0)))
