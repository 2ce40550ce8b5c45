"""Tensors of two graphs are paired by exact name or by proved values, and never by a guess."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from one_sample import one_sample
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.case import load_model
from parityscope.errors import ParityError
from parityscope.pairing import pair_graphs
from proving.models.fetching import ocr_rec_input, rendered_line, require

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from parityscope.case import Model

MEMORY = 512 << 20
REFERENCE = "x_t = Tanh(x)  x_e = Exp(x)  s = Add(x_t, x_e)  y = Relu(s)"
# The same function under other names; `odd` is no tensor of the reference's.
RENAMED = "k = Exp(x)  l = Tanh(x)  m = Add(l, k)  odd = Neg(m)  n = Neg(odd)  y = Relu(n)"


INPUTS = one_sample({"x": np.linspace(-1.3, 0.9, 12, dtype=np.float32).reshape(3, 4)})


def made(path: Path, body: str) -> Model:
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[N, 4] x) => (float[N, 4] y) {{ {body} }}'
    onnx.save(onnx.parser.parse_model(text), path)
    return load_model(path)


def test_renamed_tensors_are_paired_by_value(tmp_path: Path) -> None:
    found = pair_graphs(
        made(tmp_path / "r.onnx", REFERENCE), made(tmp_path / "c.onnx", RENAMED), INPUTS, explicit={}, memory=MEMORY
    )
    assert found.how == {"y": "name", "x_t": "value", "x_e": "value", "s": "value"}
    assert found.names["y"] == "y"
    assert (found.names["x_t"], found.names["x_e"]) == ("l", "k")
    assert found.names["s"] in {"m", "n"}  # n = -(-m) is the same values
    assert "tensor odd of the candidate" in {skip.what for skip in found.skipped}


def test_another_function_is_not_paired(tmp_path: Path) -> None:
    # Tanh and Exp move by a thousandth of their inputs: ten times what the proof allows.
    other = (
        "c = Constant<value = float[1] {1.001}>()  z = Mul(x, c)  k = Exp(z)  l = Tanh(z)  m = Add(l, k)  y = Relu(m)"
    )
    found = pair_graphs(
        made(tmp_path / "r.onnx", REFERENCE), made(tmp_path / "c.onnx", other), INPUTS, explicit={}, memory=MEMORY
    )
    assert found.names == {"y": "y"}
    unpaired = {f"tensor {name} of the reference" for name in ("x_t", "x_e", "s")}
    assert unpaired <= {skip.what for skip in found.skipped}


def test_an_explicit_name_goes_first(tmp_path: Path) -> None:
    found = pair_graphs(
        made(tmp_path / "r.onnx", REFERENCE),
        made(tmp_path / "c.onnx", RENAMED),
        INPUTS,
        explicit={"s": "n"},
        memory=MEMORY,
    )
    assert (found.names["s"], found.how["s"]) == ("n", "map")


@pytest.mark.parametrize(
    ("explicit", "side"), [({"nothing": "m"}, "reference"), ({"s": "nothing"}, "candidate"), ({"S": "m"}, "reference")]
)
def test_a_wrong_map_is_refused(tmp_path: Path, explicit: Mapping[str, str], side: str) -> None:
    with pytest.raises(ParityError, match=f"the {side}'s graph has no tensor") as raised:
        pair_graphs(
            made(tmp_path / "r.onnx", REFERENCE),
            made(tmp_path / "c.onnx", RENAMED),
            INPUTS,
            explicit=explicit,
            memory=MEMORY,
        )
    assert raised.value.fix


@pytest.mark.model
@pytest.mark.story
def test_two_exports_of_the_recogniser() -> None:
    reference, candidate = load_model(require("ocr-rec")), load_model(require("ocr-npm-rec"))
    inputs = one_sample(ocr_rec_input(rendered_line("Parity in 2024")))
    found = pair_graphs(reference, candidate, inputs, explicit={}, memory=MEMORY)
    assert {value.name for value in reference.outputs} <= set(found.names)
    assert len(found.names) > 100
    arrays = inputs.sample(0).arrays
    mine = open_session(reference.graph(), outputs=list(found.names))(arrays)
    its = open_session(candidate.graph(), outputs=list(dict.fromkeys(found.names.values())))(arrays)
    equal = [name for name, other in found.names.items() if np.array_equal(mine[name], its[other])]
    assert len(equal) > len(found.names) // 2
