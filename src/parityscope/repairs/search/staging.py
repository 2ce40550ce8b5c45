"""The copy that is worked on: range repairs applied, every node named, written to a scratch folder and read again.

`parityscope.case.graph.node_name` gives nodes without a name one from their place; in the copy these names are written
down, and names that several nodes share are told apart, so that a node is called the same before and after Casts are
put in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.case.graph import computing, node_name
from parityscope.case.model import load_model
from parityscope.errors import ParityError
from parityscope.records import Finding
from parityscope.repairs import repairs

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import onnx_ir as ir

    from parityscope.case import Model
    from parityscope.repairs.search.records import Edit

__all__ = ["applied", "finding_of", "save", "staged"]

_INLINE_LIMIT = 1 << 30  # bytes of weights; protobuf ends at 2 GB, graph and names included


def finding_of(code: str, details: dict[str, Any], claim: str = "") -> Finding:
    """The finding that a repair is given."""
    return Finding(
        code=code,
        title="Out of range in the format",
        role="cause",
        claim=claim or f"{details.get('node', '')} is out of range",
        confidence=1.0,
        confidence_from="measured on the search samples",
        details=details,
    )


def applied(model: ir.Model, edits: Iterable[Edit]) -> ir.Model:
    """`model` with unique node names and these repairs, edited in place.

    Raises:
        ParityError: a repair does not exist or cannot be applied where it says.
    """
    _name_nodes(model)
    known = repairs()
    for edit in edits:
        repair = known.get(edit.repair)
        if repair is None or repair.apply(model, finding_of(edit.code, dict(edit.details))) is None:
            raise ParityError(
                f"the repair {edit.repair!r} cannot be applied to node {edit.node!r}",
                fix="search again without the plan, or take the repair out of it",
            )
        _name_nodes(model)
    return model


def staged(model: Model, edits: tuple[Edit, ...], folder: Path, name: str = "staged") -> Model:
    """`model` with the edits as a file in `folder`, read back."""
    path = folder / f"{name}.onnx"
    save(applied(model.graph(), edits), path)
    return load_model(path)


def save(model: ir.Model, path: Path) -> None:
    """Writes a model, with its weights beside it (`<name>.onnx.data`) where they are too much for one file."""
    import onnx_ir as ir

    size = sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value is not None)
    if size > _INLINE_LIMIT:
        ir.save(model, path, external_data=f"{path.name}.data")
        return
    for value in model.graph.initializers.values():
        if isinstance(value.const_value, ir.ExternalTensor):
            value.const_value = ir.tensor(value.const_value.numpy().copy(), name=value.name)
    ir.save(model, path)


def _name_nodes(model: ir.Model) -> None:
    model.graph.sort()
    taken: set[str] = set()
    for index, node in enumerate(computing(model)):
        name = node_name(node, index)
        while name in taken:
            name = f"{name}#{index}"
        node.name = name
        taken.add(name)
