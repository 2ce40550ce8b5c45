"""The contract of renderers, for those who write them.

`check_renderer(RENDERER, folder)` renders three studies (within, beyond with a hostile name, and one in which nothing was
examined) and raises AssertionError with a sentence for the first promise that is broken: a text each time, the same
text each time, the document unchanged, JSON that is strict, and HTML in which no name becomes markup.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.backends.contract import require_promise
from parityscope.backends.targets import parse_target
from parityscope.case import Case, load_inputs, load_model
from parityscope.case.formats.npz import write_npz
from parityscope.records import Policy
from parityscope.study import Examination, Request, examine_request

if TYPE_CHECKING:
    from pathlib import Path

    from parityscope.report import Renderer

_HOSTILE = "</script><b>|`y"
_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y)
<float tiny = {1e-9}> {
  h = Mul(x, tiny)
  y = Relu(h)
}"""


def check_renderer(renderer: Renderer, folder: Path) -> None:
    """Checks a renderer; models and inputs are written below `folder`.

    Raises:
        AssertionError: a sentence that says what the renderer does not keep.
    """
    require_promise(bool(renderer.name), "a renderer needs a name, which --format takes")
    require_promise(
        renderer.suffix.startswith("."), f"{renderer.name}: the suffix {renderer.suffix!r} begins with no dot"
    )
    for what, document in _example_documents(folder).items():
        held = copy.deepcopy(document)
        text = renderer.render(document)
        require_promise(
            isinstance(text, str) and bool(text), f"{renderer.name} gives no text for a study that is {what}"
        )
        require_promise(document == held, f"{renderer.name} changes the document of a study that is {what}")
        require_promise(
            renderer.render(held) == text, f"{renderer.name} gives another text for the same study ({what})"
        )
        if renderer.suffix.endswith(".json"):
            _check_json(renderer, text)
        if renderer.suffix.endswith((".html", ".svg", ".xml")):
            require_promise("<b>|" not in text, f"{renderer.name} lets a tensor's name become markup")


def _check_json(renderer: Renderer, text: str) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{renderer.name} writes {constant}, which is not JSON")

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError as error:
        raise AssertionError(f"{renderer.name} does not write JSON: {error}") from error


def _example_documents(folder: Path) -> dict[str, dict[str, Any]]:
    return {
        "within": _examine_example(folder / "within", "y", "ort?optimization=disabled"),
        "beyond": _examine_example(folder / "beyond", _HOSTILE, "sim:f16"),
        "incomplete": {"schema": "parityscope/1", "verdict": "incomplete"},
    }


def _examine_example(folder: Path, output: str, candidate: str) -> dict[str, Any]:
    import onnx

    folder.mkdir(parents=True)
    proto = onnx.parser.parse_model(_MODEL)
    proto.graph.output[0].name = proto.graph.node[1].output[0] = output
    onnx.save(proto, folder / "model.onnx")
    write_npz(folder / "x.npz", {"x": np.arange(1, 9, dtype=np.float32).reshape(1, 8)})
    model = load_model(folder / "model.onnx")
    inputs = load_inputs(model, folder / "x.npz", spool=folder / "spool")
    case = Case(name="model", model=model, inputs=inputs, policy=Policy())
    (folder / "tensors").mkdir()
    return examine_request(
        Examination(
            request=Request(model=case.model.path, candidate=candidate),
            case=case,
            reference=parse_target("ort"),
            candidate=parse_target(candidate),
            folder=folder / "tensors",
        )
    )
