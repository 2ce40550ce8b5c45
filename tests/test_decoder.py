"""Models that feed themselves: how inputs are fed, where two texts part and at what margin, teacher-forced beside free."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from command_line import exit_status, read_study
from parityscope.localization.calls import first_beyond, growth_of, has_other_arithmetic
from parityscope.localization.next_inputs import feed_inputs, read_feed, start_inputs, token_of
from parityscope.report.as_text import render_text
from parityscope.testing.networks import write_network
from proving.models.fetching import require
from proving.models.samples import sample_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    Arrays = Mapping[str, np.ndarray]

INPUTS, OUTPUTS = ("ids", "past", "mask", "position"), ("logits", "present", "append(mask, 1)")


def fed(line: str, name: str, held: np.ndarray, outputs: Arrays) -> np.ndarray:
    return feed_inputs({name: read_feed(name, line, INPUTS, OUTPUTS)}, {name: held}, outputs)[name]


def test_each_line_feeds_what_it_says() -> None:
    logits = np.zeros((2, 3, 5), np.float32)
    logits[0, 0, 4] = logits[0, 2, 1] = logits[1, 2, 3] = 9.0
    outputs = {"logits": logits, "present": np.ones((2, 4, 1), np.float16)}
    ids = np.array([[7], [7]])
    assert fed("argmax(logits)", "ids", ids, outputs).tolist() == [[1], [3]]
    assert fed("argmax(logits) from 5 until 2", "ids", ids[:, 0], outputs).tolist() == [1, 3]
    assert fed("append(ids, argmax(logits))", "ids", ids, outputs).tolist() == [[7, 1], [7, 3]]
    assert fed("present", "past", np.zeros((2, 3, 1), np.float32), outputs).dtype == np.float32
    assert fed("position + 1", "position", np.array([4]), outputs).tolist() == [5]
    assert fed("append( mask , 1 )", "mask", np.ones((2, 3), np.int64), outputs).shape == (2, 4)
    # A tensor that is called like a line is meant itself.
    assert fed("append(mask, 1)", "mask", np.zeros(1), {"append(mask, 1)": np.array([6.0])}).tolist() == [6.0]
    start = start_inputs(
        {
            "ids": read_feed("ids", "argmax(logits) from 5", INPUTS, OUTPUTS),
            "past": read_feed("past", "present from zeros(1, 4, 0, 16)", INPUTS, OUTPUTS),
        },
        {"ids": np.array([[1]]), "past": np.zeros((1, 4, 1, 16), np.float16)},
    )
    assert start["ids"].tolist() == [[5]]
    assert (start["past"].shape, start["past"].dtype) == ((1, 4, 0, 16), np.float16)


@pytest.mark.parametrize(
    ("name", "line", "told"),
    [
        ("ids", "logit", "no output 'logit'"),
        ("ids", "argmax(logit)", "does not say"),
        ("ids", "past + 1", "does not say"),
        ("ids", "append(mask, argmax(logits))", "does not say"),
        ("ids", "append(ids, append(ids, 1))", "does not say"),
        ("past", "present until 3", "feeds none"),
        ("past", "present from nothing", "no number and no zeros"),
        ("past", "present from zeros(99999, 99999)", "no number and no zeros"),
        ("past", f"present from zeros({'9' * 400})", "no number and no zeros"),
        ("ids", f"{'append(ids, ' * 2000}logits{')' * 2000}", "does not say"),
    ],
)
def test_a_line_that_says_nothing_is_refused(name: str, line: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        read_feed(name, line, INPUTS, OUTPUTS)


def test_what_holds_no_logits_is_refused() -> None:
    for shape in ((3,), (1, 0, 5), (1, 2, 3, 4)):
        with pytest.raises(ValueError, match="holds no logits"):
            token_of(np.zeros(shape), "y")
    with pytest.raises(ValueError, match="cannot be fed back"):
        fed("present", "past", np.zeros((1, 1)), {"present": np.zeros((1, 1, 1))})


# A decoder of three tokens whose logits are [a, b, 0] + what is carried, with a = 1 and b = 1 - gap from call 2 on.
def decoder(*, gap: float = 0.5, off: float = 0.0, carried: float = 0.0) -> Callable[[Arrays], dict[str, np.ndarray]]:
    def call(arrays: Arrays) -> dict[str, np.ndarray]:
        state = arrays["h"] + carried + 1.0
        second = 1.0 - gap if state[0, 0] >= 2.0 else 0.0
        return {"logits": np.array([[1.0, second + off + (state[0, 0] % 1.0), 0.0]]), "next": state}

    return call


def written(candidate: Callable[[Arrays], dict[str, np.ndarray]], honest: float = 0.0, *, gap: float = 0.5) -> Any:
    states = {"ids": "argmax(logits) until 2", "h": "next"}
    feeds = {name: read_feed(name, line, ("ids", "h"), ("logits", "next")) for name, line in states.items()}
    start = {"ids": np.array([0]), "h": np.zeros((1, 1))}
    return growth_of(
        decoder(gap=gap), candidate, [start] * 5, states, honest=decoder(gap=gap, off=honest), feeds=feeds, forced=True
    )


def test_a_tie_is_no_fault_and_a_wide_margin_is() -> None:
    # The candidate moves the second logit by 0.02 over a margin of 0.01; an honest deployment moves it by 0.005.
    tie = written(decoder(gap=0.01, off=0.02), 0.005, gap=0.01)
    assert (tie.parting.call, tie.parting.token, tie.parting.other) == (2, 0, 1)
    assert tie.parting.margin == pytest.approx(0.01)
    assert tie.parting.moved == pytest.approx(0.02)
    assert tie.parting.honest == pytest.approx(0.005)
    assert tie.parting.forced
    assert tie.parting.is_tie
    wide = written(decoder(off=0.6), 0.005)
    assert not wide.parting.is_tie
    assert first_beyond(wide).call == 1  # 0.6 is beyond what is honest long before a token tells
    assert first_beyond(written(decoder(gap=0.5, off=0.004), 0.005)) is None


def test_what_a_call_does_itself_is_told_from_what_is_carried() -> None:
    # The state drifts by 0.3 a call: free, the second logit wins at call 2; on the reference's own states it never does so then.
    drifting = written(decoder(carried=0.3), 0.0)
    assert (drifting.parting.call, drifting.parting.forced) == (2, False)
    assert [step.forced_token for step in drifting.steps[:2]] == [0, 0]
    assert has_other_arithmetic(drifting.steps[0])  # its state is wrong in every call
    same = written(decoder(), 0.0)
    assert same.parting is None
    assert [step.forced for step in same.steps] == [0.0] * 5


def test_the_calls_end_at_the_token() -> None:
    feeds = {"ids": read_feed("ids", "argmax(logits) until 2", ("ids",), ("logits",))}
    counts = iter(range(9))

    def call(arrays: Arrays) -> dict[str, np.ndarray]:
        return {"logits": np.eye(5)[arrays["ids"] + 1]}

    start = [{"ids": np.array([0])} for _ in counts]
    found = growth_of(call, call, start, {"ids": "argmax(logits) until 2"}, feeds=feeds)
    assert [step.token for step in found.steps] == [1, 2]


# Attention over a cache that grows by a row with each token.
CACHED = """<ir_version: 8, opset_import: ["" : 17]>
g (int64[1,1] ids, float[1,P,8] past) => (float[1,1,12] logits, float[1,Q,8] present) {
  e = Gather(table, ids)  k = MatMul(e, wk)  present = Concat <axis = 1> (past, k)  q = MatMul(e, wq)
  kt = Transpose <perm = [0, 2, 1]> (present)  s = MatMul(q, kt)  a = Softmax(s)  v = MatMul(a, present)
  r = Add(v, e)  logits = MatMul(r, head)
}"""
TURNED = CACHED.replace(
    "present = Concat <axis = 1> (past, k)", "old = Mul(past, turn)  present = Concat <axis = 1> (old, k)"
)


@pytest.fixture
def cached(tmp_path: Path) -> list[str]:
    """The words of a diagnosis of the decoder, which lies beside one whose cache turns its sign."""
    return write_decoder(tmp_path, 14)


def write_decoder(tmp_path: Path, seed: int) -> list[str]:
    numbers = np.random.default_rng(seed)
    weights = {name: numbers.normal(size=(8, 8)).astype(np.float32) for name in ("wk", "wq")}
    weights |= {"table": 1.5 * numbers.normal(size=(12, 8)).astype(np.float32), "turn": np.array([-1.0], np.float32)}
    weights["head"] = numbers.normal(size=(8, 12)).astype(np.float32)
    write_network(tmp_path / "m.onnx", CACHED, weights)
    write_network(tmp_path / "turned.onnx", TURNED, weights)
    np.savez(tmp_path / "start.npz", ids=np.array([[3]]), past=np.zeros((1, 1, 8), np.float32))
    (tmp_path / "loop.toml").write_text(
        'steps = 16\n[feed]\nids = "argmax(logits) from 5"\npast = "present from zeros(1, 0, 8)"\n', "utf-8"
    )
    return [str(tmp_path / "m.onnx"), "--inputs", str(tmp_path / "start.npz"), "--quiet", "--format", "json"]


def test_a_wrong_cache_is_told_by_the_first_other_token(
    cached: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    loop = ["--loop", str(tmp_path / "loop.toml")]
    turned = f"ort?model={tmp_path / 'turned.onnx'}"
    assert exit_status("diagnose", *cached, *loop, "--candidate", turned, "--study", str(tmp_path / "turned")) == 1
    told = {one["code"]: one for one in json.loads(capfd.readouterr().out)["findings"]}
    study = read_study(tmp_path / "turned")
    calls = study["calls"]
    assert calls["steps"][0]["error"] == 0.0  # an empty cache has no sign
    parting = calls["parting"]
    assert parting["call"] > 1
    assert parting["tensor"] == "logits"
    assert not parting["tie"]
    first = calls["steps"][parting["call"] - 1]
    assert (first["token"], first["free_token"]) == (parting["token"], parting["other"])
    assert told["SEQ002"]["role"] == "cause"
    # The chart of the errors, and where the texts part, are on the page and in the text.
    page = (tmp_path / "turned" / "report.html").read_text("utf-8")
    parts = f"token {parting['other']} for {parting['token']}"
    assert 'id="calls"' in page
    assert parts in page
    text = render_text(study)
    assert "Call by call" in text
    assert parts in text
    # Honest FP16 writes the same text, and says so.
    assert exit_status("diagnose", *cached, *loop, "--candidate", "sim:f16", "--study", str(tmp_path / "f16")) == 0
    calls = read_study(tmp_path / "f16")["calls"]
    assert len(calls["steps"]) == 16
    assert calls["parting"] is None
    assert 0 < max(step["forced"] for step in calls["steps"]) < 0.01


def test_two_tokens_that_are_as_likely_are_no_fault(tmp_path: Path) -> None:
    # Its third token leads by 0.18, which what BF16 carries in the cache crosses; on the reference's own cache it does not.
    words = [*write_decoder(tmp_path, 82), "--loop", str(tmp_path / "loop.toml"), "--candidate", "sim:bf16"]
    assert exit_status("diagnose", *words, "--study", str(tmp_path / "s")) == 0
    study = read_study(tmp_path / "s")
    parting = study["calls"]["parting"]
    assert (parting["call"], parting["tie"], parting["forced"]) == (3, True, False)
    assert parting["margin"] < 0.2
    assert [one["role"] for one in study["findings"] if one["code"] == "SEQ002"] == ["information"]


def test_a_function_drives_the_calls(cached: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "drive.py").write_text(
        "def go(call, inputs, outputs):\n"
        "    return {'ids': outputs['logits'][:, -1:].argmax(-1), 'past': outputs['present'][:, -4:]}\n"
        "def wrong(call, inputs, outputs):\n    return {'nothing': outputs['logits']}\n",
        "utf-8",
    )
    words = [*cached, "--candidate", "ort?optimization=disabled"]
    line = ["--loop", f"{tmp_path / 'drive.py'}:go", "--steps", "7", "--study", str(tmp_path / "s")]
    assert exit_status("diagnose", *words, *line) == 0
    capfd.readouterr()
    study = read_study(tmp_path / "s")
    assert len(study["calls"]["steps"]) == 7
    assert "drive" not in study["question"]["asked"]
    for text, told in (
        (f"{tmp_path / 'drive.py'}:wrong", "was given nothing"),
        ("steps = 3\n", "not once"),
        ('[feed]\nids = "argmax(logit)"\n', "does not say"),
        ("[feed]\nids = 3\n", "no table of lines"),
        ('steps = -1\n[feed]\nids = "logits"\n', "not a count"),
        ('start = 1\n[feed]\nids = "logits"\n', "no 'start'"),
    ):
        (tmp_path / "bad.toml").write_text(text, "utf-8")
        loop = text if text.endswith(":wrong") else str(tmp_path / "bad.toml")
        assert exit_status("diagnose", *words, "--loop", loop, "--study", str(tmp_path / "t")) == 2
        assert told in capfd.readouterr().err


@pytest.mark.model
def test_a_speech_detector_streams(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    frames = sample_of("vad-seq")["input"][:8]
    first = sample_of("vad-18")
    (tmp_path / "frames").mkdir()
    for number, frame in enumerate(frames):
        np.savez(tmp_path / "frames" / f"{number}.npz", **{**first, "input": frame[None]})
    (tmp_path / "loop.toml").write_text('[feed]\nstate = "stateN from 0"\n', "utf-8")
    words = [str(require("vad-18")), "--inputs", str(tmp_path / "frames"), "--loop", str(tmp_path / "loop.toml")]
    words += ["--steps", "8", "--candidate", "sim:bf16", "--quiet", "--study", str(tmp_path / "s")]
    assert exit_status("diagnose", *words) == 0
    calls = read_study(tmp_path / "s")["calls"]
    # The state is carried, and its gates forget: running free is about as near as each call alone.
    assert len(calls["steps"]) == 8
    assert calls["parting"] is None
    for step in calls["steps"]:
        assert 0 < step["forced"] < 0.2
        assert step["error"] < 4 * calls["steps"][0]["error"]
