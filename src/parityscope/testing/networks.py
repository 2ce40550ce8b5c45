"""Small networks as ONNX text: what examples, planted faults and tests are written in.

The text is that of the ONNX standard ("ONNX Textual Syntax", docs/Syntax.md of the onnx repository), such as
`<ir_version: 8, opset_import: ["" : 17]> g (float[2,4] x) => (float[2,3] y) { y = MatMul(x, w) }`. It has no good way of
writing a weight, so that weights are given beside it, by name.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import onnx

_NONE: Mapping[str, Any] = MappingProxyType({})


def parse_network(text: str, constants: Mapping[str, Any] = _NONE) -> onnx.ModelProto:
    """The model of `text`; `constants`, arrays of any shape and dtype or numbers, become initializers of its graph.

    Raises:
        onnx.parser.ParseError: `text` is no model.
    """
    import onnx

    model = onnx.parser.parse_model(text)
    for name, array in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array, order="C"), name))
    return model


def write_network(path: Path, text: str, constants: Mapping[str, Any] = _NONE) -> Path:
    """The same as a file: `path`, whose folder there is."""
    import onnx

    onnx.save(parse_network(text, constants), path)
    return path
