"""The chosen assignment as a file: a strongly typed model, or the repaired FP32 model for runtimes that convert.

The file is written beside its final name first and moved there, so that nobody meets half of it; an existing file is
never replaced.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.sites import is_float
from parityscope.arithmetic.typed import typed_model
from parityscope.arithmetic.typed.tensorrt import tensorrt_concerns
from parityscope.case.graph import computing_nodes, node_name
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, replace
from parityscope.records import Skip
from parityscope.repairs.search.fp8 import chosen_products
from parityscope.repairs.search.staging import save_model

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import onnx_ir as ir

    from parityscope.arithmetic.float8 import Scalings
    from parityscope.case import Model
    from parityscope.repairs.search.records import KeptNode


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRepair:
    """Where the model is, its Casts (None where it has no types to convert between), and what there is to say."""

    path: Path
    casts: int | None
    notes: tuple[Skip, ...]


def unwritable_nodes(model: ir.Model, low: str) -> frozenset[str]:
    """The nodes, inside bodies too, that stay in FP32 even if everything is to be low."""
    formats = typed_model(model, low, {}, inside=True).formats
    return frozenset(name for name, held in formats.items() if held == "f32")


def typed_names(model: ir.Model, low: str, products: Mapping[str, Scalings] = MappingProxyType({})) -> frozenset[str]:
    """The nodes that have a format of their own in a typed model, inside bodies too."""
    return frozenset(typed_model(model, low, {}, products=products, inside=True).formats)


def write_assignment(
    staged: Model,
    low: str,
    kept: Sequence[KeptNode],
    path: Path,
    *,
    typed: bool,
    products: Mapping[str, Scalings] = MappingProxyType({}),
) -> WrittenRepair:
    """Writes the assignment to `path`: nodes in `low` but for the kept ones, and `products` in FP8 but for the kept ones.

    Raises:
        ParityError: a kept node does not exist.
    """
    graph = staged.graph()
    if not typed:
        save_model(graph, path)
        return WrittenRepair(path=path, casts=None, notes=_skips_to_tell(kept))
    eighths = chosen_products(products, {one.node for one in kept})
    if low == "f32" and not eighths:
        save_model(graph, path)
        return WrittenRepair(path=path, casts=0, notes=())
    deciding = typed_names(graph, low, eighths)
    infer_types(graph)
    held = {one.node: one.format for one in kept}
    reasons = {one.node: one.reason for one in kept if one.node in deciding}
    casts = (
        name for name in _only_read_by(graph, reasons) if name in deciding
    )  # those of sizes follow what reads them
    reasons |= dict.fromkeys(casts, "all that read it stay in FP32")
    made = typed_model(
        graph,
        low,
        {name: held.get(name, "f32") for name in reasons},
        reasons=reasons,
        products=eighths,
        inside=True,
    )
    save_model(made.model, path)
    return WrittenRepair(path=path, casts=made.casts, notes=(*made.notes, *_tensorrt_concerns_of(made.model)))


def _tensorrt_concerns_of(model: ir.Model) -> list[Skip]:
    """What TensorRT's tables have against the file: looked up, as no engine was built."""
    return [replace(one, what=f"{one.what} in TensorRT (looked up, not run)") for one in tensorrt_concerns(model)]


def _only_read_by(graph: ir.Model, kept: Collection[str]) -> list[str]:
    """The Casts from integers whose readers are all kept: in FP16 they would need Casts back."""
    names = {node: node_name(node, index) for index, node in enumerate(computing_nodes(graph))}
    found = []
    for node, name in names.items():
        source = node.inputs[0] if node.op_type == "Cast" and not node.domain else None
        readers = [names.get(reader, "") for value in node.outputs for reader, _ in value.uses()]
        if source is not None and not is_float(source) and is_float(node.outputs[0]) and readers:
            found.extend([name] if all(reader in kept for reader in readers) else [])
    return found


def _skips_to_tell(kept: Sequence[KeptNode]) -> tuple[Skip, ...]:
    """What the runtime has to be told beside the model."""
    if not kept:
        return ()
    return (
        Skip(
            what=f"{len(kept)} nodes that are to stay in FP32",
            reason="the file is in FP32 throughout; the runtime that converts it does not know them",
            fix="add --settings KIND for what the runtime takes, or --types strong",
        ),
    )


def check_output(path: Path | None, model: Path) -> None:
    """Refuses to write over anything.

    Raises:
        ParityError: the file exists, is the model itself, or lies in no folder.
    """
    if path is None:
        return
    if path.exists():
        same = path.resolve() == model.resolve()
        raise ParityError(
            f"{path} is the model itself" if same else f"{path} exists already",
            where=str(path),
            fix="choose another -o; the input model is never overwritten",
        )
    if data_of(path).exists():
        raise ParityError(
            f"{data_of(path)} exists already, which would hold the weights",
            where=str(path),
            fix="choose another -o, or remove that file",
        )
    if not path.parent.is_dir():
        raise ParityError(f"there is no folder {path.parent}", where=str(path), fix=f"mkdir -p {path.parent}")


def move_model(source: Path, path: Path) -> None:
    """Moves a written model to its final name, and the weights that lie beside it into `<name>.onnx.data` there."""
    import onnx_ir as ir

    model = ir.load(source)
    held = [(value, value.const_value) for value in model.graph.initializers.values()]
    weights = [(value, tensor) for value, tensor in held if isinstance(tensor, ir.ExternalTensor)]
    if not weights:
        _move_file(source, path)
        return
    # The file names its data: it is written again under the final name.
    partial = path.with_name(f".{path.name}.partial")
    data, moved = source.with_name(f"{source.name}.data"), data_of(path)
    if {Path(tensor.path) for _, tensor in weights} == {data}:
        shutil.move(data, moved)
        for value, tensor in weights:
            value.const_value = ir.ExternalTensor(
                moved.name,
                tensor.offset,
                tensor.length,
                tensor.dtype,
                shape=tensor.shape,
                name=tensor.name or "",
                base_dir=moved.parent,
            )
        ir.save(model, partial)
    else:
        ir.save(model, partial, external_data=moved.name)
    partial.rename(path)
    source.unlink()


def data_of(path: Path) -> Path:
    """Where the weights of a model lie that are too much for one file."""
    return path.with_name(f"{path.name}.data")


def _move_file(source: Path, path: Path) -> None:
    partial = path.with_name(f".{path.name}.partial")
    shutil.copyfile(source, partial)
    partial.rename(path)
    source.unlink()
