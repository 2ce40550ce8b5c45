"""A few products in a coarser format than the rest are named, from the outputs alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import parityscope as ps
from parityscope.testing.networks import parse_network

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LAYERS = 6
DRAW = np.random.default_rng(17)
WEIGHTS = {f"w{number}": (DRAW.normal(size=(48, 48)) / 6).astype(np.float32) for number in range(LAYERS)}
SAMPLES = [{"x": DRAW.normal(size=(8, 48)).astype(np.float32)} for _ in range(4)]
STEPS = "\n".join(f"  p{n} = MatMul({'x' if n == 0 else f'r{n - 1}'}, w{n})\n  r{n} = Elu(p{n})" for n in range(LAYERS))
NETWORK = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[8,48] x) => (float[8,48] r{LAYERS - 1}) {{
{STEPS}
}}"""


def to_tf32(array: np.ndarray) -> np.ndarray:
    """The nearest numbers of ten bits behind the leading one, even ones in the middle."""
    bits = array.view(np.uint32).astype(np.uint64)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & 0xFFFFE000).astype(np.uint32).view(np.float32)


def to_float16(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float16).astype(np.float32)


def answers(coarse: Mapping[int, Callable[[np.ndarray], np.ndarray]], bent: float = 0.0) -> list[dict[str, np.ndarray]]:
    """What a runtime gives that takes the operands of some products in a coarser format; `bent` is another fault."""
    found = []
    for sample in SAMPLES:
        h = sample["x"]
        for number in range(LAYERS):
            keep = coarse.get(number, np.asarray)
            h = keep(h) @ keep(WEIGHTS[f"w{number}"])
            h = keep(h) if keep is to_float16 else h
            h = np.where(h > 0, h, np.expm1(h)).astype(np.float32)
            if number == 2:
                h = h * np.float32(1 + bent)
        found.append({f"r{LAYERS - 1}": h})
    return found


def told(recorded: list[dict[str, np.ndarray]]) -> tuple[str, dict[str, Any]]:
    found = ps.diagnose(parse_network(NETWORK, WEIGHTS), candidate=recorded, inputs=SAMPLES)
    causes = [one for one in found.document["findings"] if one["role"] == "cause"]
    return found.verdict, causes[0] if causes else {}


@pytest.mark.parametrize(("coarse", "keep"), [({1, 4}, to_tf32), ({0}, to_tf32), ({2, 3}, to_float16)])
def test_the_products_in_a_coarser_format_are_named(coarse: set[int], keep: Callable[[np.ndarray], np.ndarray]) -> None:
    verdict, cause = told(answers(dict.fromkeys(coarse, keep)))
    assert verdict == "beyond"
    assert cause["code"] == "ACC001"
    assert cause["details"]["products"] == [f"p{number}" for number in sorted(coarse)]
    assert cause["details"]["grade"] == ("f16" if keep is to_float16 else "tf32")
    assert f"{len(coarse)} of {LAYERS} convolutions and matrix products compute in" in cause["claim"]


@pytest.mark.search_of(0.1)
def test_what_computes_as_declared_is_not_blamed() -> None:
    assert told(answers({}))[0] == "within"


@pytest.mark.search_of(0.1)
def test_another_fault_of_that_size_is_not_laid_to_products() -> None:
    verdict, cause = told(answers({}, bent=3e-4))
    assert verdict == "beyond"
    assert "products" not in cause.get("details", {})


def test_a_format_is_simulated_where_the_candidate_calls_its_outputs_otherwise() -> None:
    recorded = answers(dict.fromkeys(range(LAYERS), to_tf32))
    by_input = {sample["x"].tobytes(): one[f"r{LAYERS - 1}"] for sample, one in zip(SAMPLES, recorded, strict=True)}
    found = ps.diagnose(
        parse_network(NETWORK, WEIGHTS),
        candidate=lambda arrays: {"other": by_input[arrays["x"].tobytes()]},
        inputs=SAMPLES,
        mapping={f"r{LAYERS - 1}": "other"},
    )
    (told,) = [one for one in found.document["findings"] if one["code"] == "ACC001"]
    assert told["role"] == "cause"
    assert told["details"]["explains"] > 0.99


def test_what_would_take_too_long_is_listed() -> None:
    count = 601
    turned = np.linalg.qr(DRAW.normal(size=(8, 8)))[0].astype(np.float32)
    steps = "".join(f"  p{n} = MatMul({'x' if n == 0 else f'p{n - 1}'}, w)\n" for n in range(count))
    network = (
        f"""<ir_version: 8, opset_import: ["" : 17]> g (float[64,8] x) => (float[64,8] p{count - 1}) {{\n{steps}}}"""
    )
    x = y = DRAW.normal(size=(64, 8)).astype(np.float32)
    for n in range(count):
        y = to_tf32(y) @ to_tf32(turned) if n in (9, 300) else y @ turned
    found = ps.diagnose(parse_network(network, {"w": turned}), candidate=[{f"p{count - 1}": y}], inputs=[{"x": x}])
    assert found.verdict == "beyond"
    assert f"which of {count} convolutions and matrix products compute in tf32" in [
        one["what"] for one in found.document["skipped"]
    ]
