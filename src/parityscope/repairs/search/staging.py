"""The copy that is worked on: functions inlined, range repairs applied, nodes named, written to a scratch folder, read again.

`parityscope.case.graph.node_name` gives nodes without a name one from their place; in the copy these names are written
down, and names that several nodes share are told apart, so that a node is called the same before and after Casts are
put in. Nodes in the bodies of If, Loop and Scan are named too, after the node around them where they have no name.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.arithmetic.graphs import divided_nodes
from parityscope.case.graph import bodies_of_node, computing_nodes, node_name
from parityscope.case.model import load_model
from parityscope.errors import ParityError
from parityscope.records import Finding
from parityscope.repairs import known_repairs

if TYPE_CHECKING:
    from collections.abc import Iterable

    import onnx_ir as ir

    from parityscope.case import Model
    from parityscope.repairs.search.records import RangeEdit

_BLOCK = 1 << 20  # bytes that are copied at a time. Chosen
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


def apply_edits(model: ir.Model, edits: Iterable[RangeEdit]) -> ir.Model:
    """`model` with its functions inlined, unique node names and these repairs, edited in place.

    Raises:
        ParityError: a repair does not exist or cannot be applied where it says.
    """
    _inline_functions(model)
    _name_nodes(model)
    known = known_repairs()
    for edit in edits:
        repair = known.get(edit.repair)
        if repair is None or repair.apply(model, finding_of(edit.code, dict(edit.details))) is None:
            raise ParityError(
                f"the repair {edit.repair!r} cannot be applied to node {edit.node!r}",
                fix="search again without the plan, or take the repair out of it",
            )
        _name_nodes(model)
    return model


def stage_model(model: Model, edits: tuple[RangeEdit, ...], folder: Path, name: str = "staged") -> Model:
    """`model` with the edits as a file in `folder`, read back."""
    path = folder / f"{name}.onnx"
    save_model(apply_edits(model.graph(), edits), path)
    return load_model(path)


def save_model(model: ir.Model, path: Path) -> None:
    """Writes a model, with its weights beside it where they are too much for one file.

    Files of weights are copied into the folder once, for all models that are written there; weights that are made go into
    `<name>.onnx.data` where they are too much.
    """
    import onnx_ir as ir

    held = [(value, value.const_value) for value in model.graph.initializers.values() if value.const_value is not None]
    if sum(tensor.nbytes for _, tensor in held) <= _INLINE_LIMIT:
        for value, tensor in held:
            if isinstance(tensor, ir.ExternalTensor):
                value.const_value = ir.tensor(tensor.numpy().copy(), name=value.name)
        ir.save(model, path)
    elif sum(tensor.nbytes for _, tensor in held if not isinstance(tensor, ir.ExternalTensor)) > _INLINE_LIMIT:
        ir.save(model, path, external_data=f"{path.name}.data")
    else:
        for value, tensor in held:
            if isinstance(tensor, ir.ExternalTensor):
                value.const_value = _copy_beside(tensor, path.parent)
        ir.save(model, path)


def _copy_beside(tensor: ir.ExternalTensor, folder: Path) -> ir.ExternalTensor:
    """The same numbers in a file of `folder`. A copy: readers of models follow no links out of the model's folder."""
    import onnx_ir as ir

    file = Path(tensor.path)
    facts = file.stat()
    name = f"weights-{facts.st_dev}-{facts.st_ino}.bin"
    if file.parent.resolve() == folder.resolve():
        name = file.name
    elif not (folder / name).exists():
        _copy_sparse(file, folder / name)
    return ir.ExternalTensor(
        name, tensor.offset, tensor.length, tensor.dtype, shape=tensor.shape, name=tensor.name or "", base_dir=folder
    )


def _copy_sparse(source: Path, target: Path) -> None:
    """Copies a file; blocks of zeros become holes, which take no room where the file system has them."""
    nothing = bytes(_BLOCK)
    with source.open("rb") as read, target.open("wb") as written:
        while block := read.read(_BLOCK):
            if block == nothing:
                written.seek(_BLOCK, os.SEEK_CUR)
            else:
                written.write(block)
        written.truncate()


def _inline_functions(model: ir.Model) -> None:
    """Puts the bodies of the model's functions in the place of the nodes that call them, so that each node has a format."""
    from onnx_ir.passes import common

    if model.functions:
        common.InlinePass()(model)


def _name_nodes(model: ir.Model) -> None:
    model.graph.sort()
    taken: set[str] = set()
    for index, node in enumerate(computing_nodes(model)):
        name = node_name(node, index)
        while name in taken:
            name = f"{name}#{index}"
        node.name = name
        taken.add(name)
    for around in divided_nodes(model.graph):
        inside = (inner for body in bodies_of_node(around) for inner in body if inner.op_type != "Constant")
        for index, inner in enumerate(inside):
            name = inner.name or f"{around.name}/{inner.op_type}#{index}"
            while name in taken:
                name = f"{name}#{index}"
            inner.name = name
            taken.add(name)
