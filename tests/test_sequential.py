"""Stopping when it is sure is wrong as seldom as was asked, however often is looked."""

from __future__ import annotations

import json
import math
import shutil
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command_line import exit_status, read_study
from parityscope.case import load_inputs, load_model
from parityscope.case.originals import with_originals
from parityscope.comparison.sequential import decide_rate, evidence_of_rate
from parityscope.records import Budget, Policy
from parityscope.study.answering import Failure
from parityscope.study.sample_tasks import Found
from parityscope.study.sampling import draw_order, judge_sampling, sampling_of

if TYPE_CHECKING:
    from pathlib import Path

    from parityscope.comparison.sequential import Decision


def first_decision(stream: np.ndarray, rate: float, confidence: float, every: int) -> tuple[Decision, int]:
    """What is said of a stream of bad samples (bool), looked at after each `every`, and after how many samples."""
    bad = np.cumsum(stream)
    for count in range(every, len(stream) + 1, every):
        found = decide_rate(int(bad[count - 1]), count, rate, confidence)
        if found != "open":
            return found, count
    return "open", len(stream)


@settings(max_examples=15)
@given(
    rate=st.sampled_from([0.01, 0.05, 0.2]),
    confidence=st.sampled_from([0.8, 0.9, 0.95]),
    true=st.floats(0.2, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_error_rate_holds_on_simulated_streams(rate: float, confidence: float, true: float, seed: int) -> None:
    generator = np.random.default_rng(seed)
    actual = rate * true
    wrong = "below" if actual >= rate else "above"
    streams = generator.random((60, 400)) < actual
    errors = sum(first_decision(one, rate, confidence, 8)[0] == wrong for one in streams)
    # More errors than the rate allows in 60 streams: so many that it happens once in ten million times by chance.
    allowed = 1 - confidence
    beyond = math.ceil(60 * allowed + 5.2 * math.sqrt(60 * allowed * (1 - allowed)) + 2)
    assert errors <= beyond


def test_at_the_very_border_both_answers_together_are_rare() -> None:
    generator = np.random.default_rng(1)
    streams = generator.random((400, 600)) < 0.1
    found = [first_decision(one, 0.1, 0.9, 1)[0] for one in streams[:150]]
    # At the border either answer is an error; each has its 10 %.
    assert found.count("below") <= 150 * 0.1 + 4 * math.sqrt(150 * 0.09)
    assert found.count("above") <= 150 * 0.1 + 4 * math.sqrt(150 * 0.09)


@pytest.mark.parametrize(("bad", "count", "rate"), [(0, 40, 0.05), (3, 40, 0.05), (7, 90, 0.2), (60, 60, 0.5)])
def test_the_evidence_is_the_integral(bad: int, count: int, rate: float) -> None:
    from mpmath import log, mp, mpf, quad

    mp.dps = 30
    likelihood = mpf(rate) ** bad * (1 - mpf(rate)) ** (count - bad)
    sides = ((0, mpf(rate), mpf(rate)), (mpf(rate), 1, 1 - mpf(rate)))
    for found, (low, high, width) in zip(evidence_of_rate(bad, count, rate), sides, strict=True):
        exact = quad(lambda q: q**bad * (1 - q) ** (count - bad), [low, high]) / width / likelihood
        assert found == pytest.approx(float(log(exact)), abs=1e-9)


def test_nothing_is_sure_before_anything_was_seen() -> None:
    assert evidence_of_rate(0, 0, 0.05) == pytest.approx((0, 0))
    assert decide_rate(0, 87, 0.05, 0.95) == "open"
    assert decide_rate(0, 88, 0.05, 0.95) == "below"  # 59 where was looked once (Wilks)
    assert decide_rate(10**6, 10**6, 0.05, 0.95) == "above"


def network(folder: Path, bad: float, count: int = 600) -> list[str]:
    """Samples of which the share `bad` overflows in FP16, one behind the other; the words of a command that compares them."""
    text = "(float[1, 4] x) => (float[1, 4] y) { y = Exp(x) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {text}'), folder / "m.onnx")
    x = np.random.default_rng(0).random((count, 4), dtype=np.float32)
    x[: round(bad * count)] = 12  # exp(12) is more than FP16 holds
    np.savez(folder / "x.npz", x=x)
    words = [
        "compare",
        str(folder / "m.onnx"),
        "--candidate",
        "sim:f16",
        "--inputs",
        str(folder / "x.npz"),
        "--stacked",
    ]
    return [*words, "--budget", "rel_l2=1e-2", "--quiet", "--study", str(folder / "study"), "--until-sure", "95%"]


@pytest.mark.parametrize(("bad", "expected", "said"), [(0.0, 0, "keep their budgets"), (0.3, 1, "miss a budget")])
def test_samples_are_taken_until_it_is_sure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bad: float, expected: int, said: str
) -> None:
    assert exit_status(*network(tmp_path, bad), "--all") == expected
    document = read_study(tmp_path / "study")
    (finding,) = [one for one in document["findings"] if one["code"] == "SURE"]
    assert said in finding["claim"]
    assert document["inputs"]["samples"] == finding["details"]["samples"] < 200
    assert len(document["outputs"][0]["per_sample"]) == document["inputs"]["samples"]
    assert "sure" in capsys.readouterr().out.lower()


@pytest.mark.parametrize("bad", [0.0, 0.3])
def test_workers_stop_at_the_same_sample(tmp_path: Path, bad: float) -> None:
    """Workers do tasks side by side, and what they did beyond the one that made it sure does not count."""
    told = []
    for more in ([], ["--workers", "2"]):
        assert exit_status(*network(tmp_path, bad), *more) == (1 if bad else 0)
        study = tmp_path / "study"
        document = read_study(study)
        (finding,) = [one for one in document["findings"] if one["code"] == "SURE"]
        told.append((document["verdict"], document["inputs"]["samples"], finding["details"], document["outputs"]))
        shutil.rmtree(study)
    assert told[1] == told[0]


def test_a_sample_is_read_when_it_is_drawn(tmp_path: Path) -> None:
    words = network(tmp_path, 0.0)
    folder = tmp_path / "files"
    folder.mkdir()
    for number, row in enumerate(np.load(tmp_path / "x.npz")["x"]):
        np.savez(folder / f"{number:03}.npz", x=row[None])
    words = [str(folder) if word.endswith("x.npz") else word for word in words if word != "--stacked"]

    def document(*more: str) -> dict[str, Any]:
        assert exit_status(*words, *more) == 0
        found = read_study(tmp_path / "study")
        shutil.rmtree(tmp_path / "study")
        return found

    first = document()
    order = draw_order(
        Policy(declared="", budgets=(Budget(output="", metric="rel_l2", limit=1e-2, reason=""),)), seed=0
    )
    taken = order(tuple(range(600)))[: first["inputs"]["samples"]]
    for path in folder.iterdir():
        if int(path.stem) not in taken:
            path.write_bytes(b"damaged")
    for more in ((), ("--workers", "2")):
        again = document(*more)
        assert again["inputs"] == first["inputs"]
        assert again["outputs"] == first["outputs"]
        assert again["skipped"] == first["skipped"]
    (folder / f"{taken[3]:03}.npz").write_bytes(b"damaged")
    lost = document("--allow-skipped", "5%")
    assert any(f"{taken[3]:03}.npz" in one["what"] for one in lost["skipped"])


def test_a_damaged_sample_that_may_be_drawn_hinders_no_images(tmp_path: Path) -> None:
    network(tmp_path, 0.0)
    samples, images = tmp_path / "files", tmp_path / "images"
    for folder in (samples, images):
        folder.mkdir()
    for number in range(4):
        np.savez(samples / f"{number}.npz", x=np.zeros((1, 4), np.float32))
        (images / f"{number}.png").write_bytes(b"")
    (samples / "2.npz").write_bytes(b"damaged")
    inputs = load_inputs(load_model(tmp_path / "m.onnx"), samples, spool=tmp_path / "spool", draw=lambda found: found)
    shown = [sample.original for sample in with_originals(inputs, images)]
    assert shown == [images / f"{number}.png" for number in (0, 1, 3)]


@pytest.mark.parametrize("workers", [(), ("--workers", "2")])
def test_where_no_drawn_sample_can_be_judged_the_reason_is_the_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], workers: tuple[str, ...]
) -> None:
    words = network(tmp_path, 0.0)
    np.savez(tmp_path / "x.npz", x=np.full((5, 4), np.nan, np.float32))
    assert exit_status(*words, *workers) == 3
    assert "nothing could be compared: every sample has a NaN" in capsys.readouterr().err
    assert not (tmp_path / "study" / "study.json").exists()


def test_what_is_not_sure_when_the_samples_end_is_incomplete(tmp_path: Path) -> None:
    assert exit_status(*network(tmp_path, 0.0, count=40)) == 3
    document = read_study(tmp_path / "study")
    assert any("not sure" in skip["reason"] and skip["asked"] for skip in document["skipped"])


def test_without_a_budget_nothing_can_be_sure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word for word in network(tmp_path, 0.0) if word not in {"--budget", "rel_l2=1e-2"}]
    assert exit_status(*words) == 2
    assert "--budget" in capsys.readouterr().err


def test_a_sample_that_cannot_be_compared_keeps_no_budget(tmp_path: Path) -> None:
    text = "(float[1, 4] x) => (float[1, 4] y) { y = Identity(x) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {text}'), tmp_path / "m.onnx")
    x = np.zeros((300, 4), np.float32)
    x[::4] = 1
    np.savez(tmp_path / "x.npz", x=x)
    code = "def infer(feeds):\n    x = feeds['x']\n    return x[:, :3] if x.any() else x\n"
    (tmp_path / "deploy.py").write_text(code, "utf-8")
    words = ["--candidate", f"python?call={tmp_path}/deploy.py:infer", "--inputs", str(tmp_path / "x.npz"), "--stacked"]
    words += ["--budget", "max_abs=1e-2", "--quiet", "--study", str(tmp_path / "study"), "--until-sure", "95%"]
    assert exit_status("compare", str(tmp_path / "m.onnx"), *words) == 1
    document = read_study(tmp_path / "study")
    (finding,) = [one for one in document["findings"] if one["code"] == "SURE"]
    assert "Fewer than 95 % of samples like these keep their budgets" in finding["claim"]


def test_a_sample_that_the_candidate_fails_on_keeps_no_budget() -> None:
    failed = [
        Failure(sample=str(one), index=one, problem="none", where="", fix="", over=False) for one in range(0, 100, 5)
    ]
    compared = [one for one in range(100) if one % 5]
    known: Any = SimpleNamespace(
        request=SimpleNamespace(until_sure=0.95),
        case=SimpleNamespace(inputs=SimpleNamespace(indices=tuple(range(100)))),
    )
    found = sampling_of(known, Found(compared=compared, failed=failed))
    assert found is not None
    assert (found.missed, found.decided) == (20, "above")
    # Of no output it is known that it misses: all that were given are good.
    judged: Any = SimpleNamespace(compared=SimpleNamespace(sampling=found))
    assert judge_sampling(judged, ()) == ()


def test_what_is_sure_of_all_budgets_is_not_said_of_one_output(tmp_path: Path) -> None:
    text = "(float[1, 4] x) => (float[1, 4] y, float[1, 4] z) { y = Identity(x) z = Neg(x) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {text}'), tmp_path / "m.onnx")
    x = np.full((600, 4), 1000, np.float32)  # so large that all samples together are within
    x[::10], x[1::10] = 1, 2
    np.savez(tmp_path / "x.npz", x=x)
    code = "def infer(feeds):\n    x = feeds['x']\n    first = x[0, 0]\n"
    code += "    return {'y': x * (1.1 if first == 1 else 1), 'z': -x * (1.1 if first == 2 else 1)}\n"
    (tmp_path / "deploy.py").write_text(code.replace("1.1", "x.dtype.type(1.1)"), "utf-8")
    words = ["--candidate", f"python?call={tmp_path}/deploy.py:infer", "--inputs", str(tmp_path / "x.npz"), "--stacked"]
    words += ["--budget", "rel_l2=1e-2", "--quiet", "--study", str(tmp_path / "study"), "--until-sure", "95%"]
    assert exit_status("compare", str(tmp_path / "m.onnx"), *words) == 1
    document = read_study(tmp_path / "study")
    (details,) = [one["details"] for one in document["findings"] if one["code"] == "SURE"]
    (beyond,) = [one for one in document["outputs"] if one["verdict"] == "beyond"]
    assert f"{details['missed']} of {details['samples']} samples miss a budget" in json.dumps(beyond)
