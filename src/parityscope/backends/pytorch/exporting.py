"""A network in a program's hands and samples of it -> its ONNX file, by the exporter that is there.

With onnxscript it is torch's exporter of exported programs (`dynamo=True`), else the one of TorchScript, which takes modules
only.
Sizes that are not the same in all samples become dynamic. Inputs are called as the samples call them.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from parityscope.backends.pytorch.binding import feed_tensors, input_order, order_of_names
from parityscope.backends.pytorch.handing import handed_network
from parityscope.backends.pytorch.loading import errors_of_exporting, load_network
from parityscope.backends.targets import parse_target
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np

    from parityscope.backends.pytorch.binding import Order
    from parityscope.backends.pytorch.loading import LoadedNetwork
    from parityscope.case import Model
    from parityscope.records import Target

    Arrays = Mapping[str, np.ndarray]

_OPSETS = (9, 20)  # that the exporter of TorchScript writes


def input_names_of(network: Any, count: int) -> list[str]:
    """What the first `count` inputs of a network are called: its parameters, or by number where it takes any."""
    with handed_network(network) as target:
        loaded = _load_plainly(target)
    return [one.name for one in loaded.parameters][:count] or [f"input_{place}" for place in range(count)]


def export_network(network: Any, samples: Sequence[Arrays], path: Path) -> None:
    """Exports a module in eval mode, or an exported program, whose inputs are like `samples`.

    Raises:
        ParityError: an exporter is missing, or cannot export it.
    """
    import torch

    dynamo = importlib.util.find_spec("onnxscript") is not None
    with handed_network(network) as target:
        loaded = _load_plainly(target)
        with errors_of_exporting(loaded), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # exporters tell of their own future, and of what they leave alone
            if not hasattr(network, "forward"):
                _check_exporter(dynamo=dynamo)
                torch.onnx.export(network, f=str(path), dynamo=True, verbose=False)
                return
            example = max(samples, key=lambda sample: sum(array.size for array in sample.values()))
            order = order_of_names(loaded, list(example))
            feeds = feed_tensors(torch, loaded, {name: example[name] for name in order.names}, "cpu")
            varying = _varying_axes(samples)
            if dynamo:
                _export_program(torch, loaded, order, feeds, varying, path)
            else:
                _export_script(torch, loaded, order, feeds, varying, path)


def write_network(model: Model, target: Target, samples: Sequence[Arrays], path: Path) -> None:
    """Exports the network that `target` runs, in its mode and in FP32, with the inputs and outputs of the ONNX model.

    Raises:
        ParityError: it cannot be loaded or exported.
    """
    import torch

    plain = replace(target, precision="", options=tuple(one for one in target.options if one[0] != "compile"))
    loaded = load_network(torch, plain, torch.device("cpu"))
    order = input_order(loaded, model, target.option("inputs"))
    dynamo = importlib.util.find_spec("onnxscript") is not None and loaded.kind != "script"
    with errors_of_exporting(loaded), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        feeds = feed_tensors(torch, loaded, {name: samples[0][name] for name in order.names}, "cpu")
        positional, keyword = order.arranged(feeds)
        made = loaded.network(*positional, **keyword)
        names = [value.name for value in model.outputs]
        named = list(made) if isinstance(made, Mapping) and {*names} <= {*made} else names
        varying = _varying_axes(samples)
        if dynamo:
            _export_program(torch, loaded, order, feeds, varying, path)
            return
        _export_script(
            torch,
            loaded,
            order,
            feeds,
            varying,
            path,
            output_names=named,
            opset_version=min(max(model.opsets.get("", _OPSETS[1]), _OPSETS[0]), _OPSETS[1]),
            training=torch.onnx.TrainingMode.EVAL
            if target.option("mode", "eval") == "eval"
            else torch.onnx.TrainingMode.PRESERVE,
        )


def _load_plainly(target: str) -> LoadedNetwork:
    import torch

    return load_network(torch, parse_target(target), torch.device("cpu"))


def _check_exporter(*, dynamo: bool) -> None:
    if not dynamo:
        raise ParityError(
            "an exported program is written as ONNX by onnxscript, which is not installed",
            fix="pip install onnxscript, or give the module itself",
        )


def _export_program(
    torch: Any, loaded: LoadedNetwork, order: Order, feeds: Arrays, varying: Mapping[str, list[int]], path: Path
) -> None:
    positional, keyword = order.arranged(feeds)
    by_key = {key or known: name for name, key, known in _keys_of(loaded, order)}
    dynamic = {
        key: dict.fromkeys(varying.get(name, ()), torch.export.Dim.DYNAMIC) or None for key, name in by_key.items()
    }
    torch.onnx.export(
        loaded.network,
        args=tuple(positional),
        f=str(path),
        kwargs=keyword,
        input_names=list(_names_in_order(order)),
        dynamic_shapes=dynamic if varying and loaded.parameters else None,
        dynamo=True,
        verbose=False,
    )


def _export_script(
    torch: Any,
    loaded: LoadedNetwork,
    order: Order,
    feeds: Arrays,
    varying: Mapping[str, list[int]],
    path: Path,
    **settings: Any,
) -> None:
    positional, keyword = order.arranged(feeds)
    # Tracing knows no keywords; a module around the network would be in all names of its nodes, so only where it must.
    network = _call_by_position(torch, loaded.network, len(positional), list(keyword)) if keyword else loaded.network
    torch.onnx.export(
        network,
        args=(*positional, *keyword.values()),
        f=str(path),
        input_names=list(_names_in_order(order)),
        dynamic_axes={name: {axis: f"{name}_{axis}" for axis in axes} for name, axes in varying.items()},
        dynamo=False,
        verbose=False,
        **settings,
    )


def _call_by_position(torch: Any, network: Any, positional: int, keys: Sequence[str]) -> Any:
    """A module that takes by position what `network` takes by keyword behind its first `positional` arguments."""

    class Positional(torch.nn.Module):  # type: ignore[misc] # torch is not there for the type checker
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *tensors: Any) -> Any:
            return self.network(*tensors[:positional], **dict(zip(keys, tensors[positional:], strict=True)))

    return Positional().eval()


def _keys_of(loaded: LoadedNetwork, order: Order) -> list[tuple[str, str, str]]:
    """Of each input its name, the keyword that it is given by ("" by position), and the parameter at its position."""
    known = [one.name for one in loaded.parameters] + [""] * len(order.names)
    return list(zip(order.names, order.keys, known, strict=False))


def _names_in_order(order: Order) -> list[str]:
    """The inputs as they are called: those by position, then those by keyword."""
    pairs = list(zip(order.names, order.keys, strict=True))
    return [name for name, key in pairs if not key] + [name for name, key in pairs if key]


def _varying_axes(samples: Sequence[Arrays]) -> dict[str, list[int]]:
    """The axes of each input along which the samples' sizes differ; inputs without any are left out."""
    found = {}
    for name in samples[0]:
        shapes = [sample[name].shape for sample in samples if name in sample]
        axes = [axis for axis, sizes in enumerate(zip(*shapes, strict=False)) if len(set(sizes)) > 1]
        if axes:
            found[name] = axes
    return found
