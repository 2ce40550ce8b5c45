"""A layer whose result is a curve of what it should be: described and drawn, and never called a cause."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from command_line import exit_status, read_study
from parityscope.languages import speak_language
from parityscope.report.as_html import render_html
from parityscope.report.as_text import render_text
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NETWORK = """<ir_version: 8, opset_import: ["" : 17]> g (float[32,20] x) => (float[32,6] y) {
  a = MatMul(x, w)
  h = Tanh(a)
  y = MatMul(h, v)
}"""
DRAW = np.random.default_rng(31)
WEIGHTS = {"w": DRAW.normal(0, 0.3, (20, 32)).astype(np.float32), "v": DRAW.normal(size=(32, 6)).astype(np.float32)}
SAMPLES = [DRAW.normal(size=(32, 20)).astype(np.float32) for _ in range(3)]


def wave(h: np.ndarray) -> np.ndarray:
    """Rises everywhere, and is none of the functions that are known."""
    return h + 0.12 * np.sin(7 * h)


def diagnose_recorded(folder: Path, give: Callable[[np.ndarray], np.ndarray], layer: str = "Tanh") -> dict[str, Any]:
    """The study of a recording whose layer `h` gives something else than it reads or, of Tanh, than it should give."""
    for name in ("inputs", "recorded"):
        (folder / name).mkdir()
    model = write_network(folder / "model.onnx", NETWORK.replace("Tanh", layer), WEIGHTS)
    for number, x in enumerate(SAMPLES):
        a = x @ WEIGHTS["w"]
        h = give(np.tanh(a) if layer == "Tanh" else a).astype(np.float32)
        np.savez(folder / "inputs" / f"{number}.npz", x=x)
        np.savez(folder / "recorded" / f"{number}.npz", a=a, h=h, y=h @ WEIGHTS["v"])
    words = ("diagnose", str(model), "--inputs", str(folder / "inputs"), "--quiet", "--study", str(folder / "study"))
    assert exit_status(*words, "--candidate", f"saved?path={folder / 'recorded'}") in {0, 1}
    return read_study(folder / "study")


def curves_of(study: dict[str, Any]) -> list[dict[str, Any]]:
    return [found["details"]["curve"] for found in study["findings"] if "curve" in found["details"]]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return diagnose_recorded(tmp_path_factory.mktemp("planted"), wave)


def test_a_curve_is_told_with_its_numbers_and_is_no_cause(planted: dict[str, Any]) -> None:
    (curve,) = curves_of(planted)
    (finding,) = [found for found in planted["findings"] if "curve" in found["details"]]
    assert not [found for found in planted["findings"] if found["role"] == "cause"]
    assert finding["site"]["tensor"] == "h"
    assert "the result is a rising curve of what the model says" in finding["claim"]
    assert curve["share"] > 0.985
    assert 9 <= len(curve["knots"]) <= 33
    x, model, given = np.array(curve["knots"]).T
    assert (np.diff(x) > 0).all()
    inner = slice(1, -1)
    # Largest slope of the curve's bend times the square of the distance between knots: what lines leave of it.
    allowed = 0.12 * 49 * np.diff(model).max() ** 2 / 8
    assert np.abs(given - wave(model))[inner].max() < allowed


def test_it_is_drawn_and_told_as_pairs(planted: dict[str, Any]) -> None:
    (curve,) = curves_of(planted)
    page = render_html(planted)
    drawn = re.search(r'<path d="([^"]*)" class="curve given"/>', page)
    assert drawn is not None
    assert drawn[1].count(",") == len(curve["knots"])
    assert 'class="curve model"' in page
    text = " ".join(render_text(planted).split())
    assert "the curve, from what the model says to what it gives: " in text
    assert text.count(" → ") >= 6
    with speak_language("zh"):
        assert "the curve" not in render_text(planted)


@pytest.mark.search_of(1.0)
@pytest.mark.parametrize("give", [lambda h: h, lambda h: h + 1e-2 * np.random.default_rng(1).normal(size=h.shape)])
def test_a_right_layer_and_noise_are_no_curve(give: Callable[[np.ndarray], np.ndarray], tmp_path: Path) -> None:
    assert curves_of(diagnose_recorded(tmp_path, give)) == []


def test_what_is_known_by_its_name_is_told_by_it(tmp_path: Path) -> None:
    study = diagnose_recorded(tmp_path, lambda h: np.clip(h, -0.5, 0.5))
    assert curves_of(study) == []
    assert next(found["role"] for found in study["findings"] if (found["site"] or {}).get("tensor") == "h") == "cause"


def test_a_curve_of_what_enters_is_told_where_the_result_does_not_know_it(tmp_path: Path) -> None:
    # Of negative numbers Relu says nothing, and what is given there waves.
    study = diagnose_recorded(tmp_path, lambda a: np.maximum(a, 0) + 0.3 * np.cos(2 * a), layer="Relu")
    (curve,) = curves_of(study)
    assert curve["of"] == "a"
    assert curve["share"] > 0.97  # a number of the other samples lies far beyond the ends of what was fitted
    x, model, _ = np.array(curve["knots"]).T
    apart = np.abs(x) > np.diff(x).max()  # lines between knots cut Relu's corner off
    assert model[apart] == pytest.approx(np.maximum(x, 0)[apart], abs=0.05)
    assert "what enters at a" in render_html(study)
