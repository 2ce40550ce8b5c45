"""Two recordings without a model: what the first holds, as a model that nothing is computed of, and as samples without inputs.

Its outputs are those that the recording has, each made by an operator that no runtime has: what any arithmetic explains of a
difference is then not known, and only a budget, or what is not finite on one side alone, gives a verdict.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from parityscope.backends.saved import open_recording
from parityscope.case import Inputs, Sample, load_model
from parityscope.errors import ParityError
from parityscope.records import Target

if TYPE_CHECKING:
    from parityscope.case import Model
    from parityscope.request import Request

__all__ = ["is_recorded", "load_recorded"]

_SUFFIXES = frozenset({".json", ".npy", ".npz", ".safetensors"})
_DOMAIN, _OPERATOR = "parityscope.recorded", "Recorded"


def is_recorded(model: str | Path) -> bool:
    """Whether what stands in a model's place is a recording."""
    return Path(model).suffix.lower() in _SUFFIXES or Path(model).is_dir()


def load_recorded(request: Request, folder: Path) -> tuple[Model, Inputs, Target]:
    """The model that is written into `folder`, one sample without inputs for each that was recorded, and the recording's target.

    Raises:
        ParityError: more is asked for than outputs tell, or it cannot be read.
    """
    path = str(request.model)
    if request.goes_to("tensors"):
        raise ParityError(
            f"{path} is a recording, and has no layers", fix="parityscope compare holds its outputs beside others"
        )
    if request.inputs:
        raise ParityError(
            "two recordings have no inputs", fix="leave --inputs out, or give the model in place of the first"
        )
    stored, files = open_recording(path)
    names = files or stored.labels
    first = stored.read(0, stored.names(0))
    written = folder / f"{Path(path).stem}.onnx"
    _write_model({name: (str(array.dtype), array.ndim) for name, array in first.items()}, written)
    model = load_model(written)
    inputs = Inputs(
        origin=path,
        names=(),
        sha256="",
        indices=tuple(range(len(names))),
        count=len(names),
        read=lambda index: Sample(index=index, name=names[index], arrays={}),
    )
    return model, inputs, Target(backend="saved", options=(("path", path),))


def _write_model(tensors: dict[str, tuple[str, int]], path: Path) -> None:
    import numpy as np
    import onnx
    from onnx import helper

    nodes, values = [], []
    for name, (dtype, axes) in tensors.items():
        nodes.append(helper.make_node(_OPERATOR, [], [name], name=name, domain=_DOMAIN))
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        values.append(helper.make_tensor_value_info(name, kind, [None] * axes))
    graph = helper.make_graph(nodes, path.stem, [], values)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(_DOMAIN, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
