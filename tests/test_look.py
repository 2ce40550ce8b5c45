"""A model alone: `parityscope model.onnx` says what FP16 and BF16 would do to it, on what lies beside it, and what comes next."""

from __future__ import annotations

import json
import wave
from pathlib import Path

import numpy as np
import onnx
import pytest

from command_line import exit_status

LINES = 15
ROWS = """<ir_version: 8, opset_import: ["" : 17]> rows (float[N, 10] x) => (float[N, 10] y) <float big = {SIZE}> {
    h = Mul(x, big)  s = Tanh(h)  y = Mul(s, h)
}"""
IMAGES = (
    """<ir_version: 8, opset_import: ["" : 17]> images (float[1, 3, 8, 8] x) => (float[1, 3, 8, 8] y) { y = Tanh(x) }"""
)
SOUND = (
    """<ir_version: 8, opset_import: ["" : 17]> sound (float[N, 400, 1] x) => (float[N, 400, 1] y) { y = Tanh(x) }"""
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def save(text: str) -> None:
    onnx.save(onnx.parser.parse_model(text), "m.onnx")


def look(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert exit_status("m.onnx", *words) == status
    text = capsys.readouterr().out
    assert len(text.splitlines()) <= LINES
    return " ".join(text.split())


def test_what_is_lost_is_told_with_the_command_that_mends_it(capsys: pytest.CaptureFixture[str]) -> None:
    save(ROWS.replace("{SIZE}", "{1e6}"))
    np.savez("outputs.npz", y=np.ones((2, 10), np.float32))  # fits no input
    np.savez("x.npz", x=np.full((2, 10), 3.0, np.float32))
    text = look(capsys, "-o", "page.html", status=1)
    assert text.startswith("✕ m: an output is lost in FP16, none in BF16 (1 sample of x.npz beside the model)")
    assert "FP16 'y' is NaN or infinite; FP16 overflows at " in text
    assert "Next keep in FP32 what FP16 breaks, and no more: parityscope repair m.onnx --inputs x.npz --low f16" in text
    assert "FP16 overflows at" in Path("page.html").read_text(encoding="utf-8")


def test_without_samples_they_are_generated_and_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    save(ROWS.replace("{SIZE}", "{0.5}"))
    text = look(capsys)
    assert text.startswith("✓ m: no output is lost in FP16 or BF16 (2 generated samples)")
    assert "Next hold a deployment against it: parityscope diagnose m.onnx --candidate TARGET --inputs DATA" in text
    assert "Note the samples are generated" in text
    text = look(capsys, "--lang", "zh")
    assert "在 FP16 或 BF16 中没有输出丢失" in text
    assert "样本是生成的" in text


def test_the_next_command_reads_the_samples_as_this_one_did(capsys: pytest.CaptureFixture[str]) -> None:
    save(ROWS.replace("{SIZE}", "{0.5}"))
    np.savez("x.npz", x=np.ones((6, 10), np.float32))
    text = look(capsys, "--inputs", "x.npz", "--stacked", "--samples", "2")
    assert "parityscope diagnose m.onnx --candidate TARGET --inputs x.npz --stacked --samples 2" in text


def test_a_sample_that_cannot_be_read_is_told_by_every_verb_that_goes_on_without_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    save(ROWS.replace("{SIZE}", "{0.5}"))
    Path("samples").mkdir()
    for number in range(2):
        np.savez(f"samples/{number}.npz", x=np.full((1, 10), number + 1, np.float32))
    Path("samples/2.npz").write_bytes(b"damaged")
    data = ("m.onnx", "--inputs", "samples")
    assert "Missing sample 2 (2.npz): 2.npz cannot be read" in look(capsys, *data[1:], status=3)
    for words in (("run", *data, "-o", "recording"), ("repair", *data, "--low", "bf16", "-o", "r.onnx")):
        assert exit_status(*words) == 3
        told = capsys.readouterr()
        assert "sample 2 (2.npz): 2.npz cannot be read" in told.out + told.err
        assert exit_status(*words[:-1], f"again-{words[-1]}", "--allow-skipped", "40%") == 0
        told = capsys.readouterr()
        assert "sample 2 (2.npz): 2.npz cannot be read" in told.out + told.err
    look(capsys, *data[1:], "--allow-skipped", "40%")


@pytest.mark.parametrize("kind", ["npy", "png", "wav", "json"])
def test_samples_beside_the_model_are_found(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    save({"png": IMAGES, "wav": SOUND}.get(kind, ROWS.replace("{SIZE}", "{0.5}")))
    if kind == "npy":
        np.save("one.npy", np.ones((2, 10), np.float32))
    elif kind == "png":
        pytest.importorskip("PIL.Image").new("RGB", (20, 12), (90, 30, 200)).save("one.png")
    elif kind == "wav":
        with wave.open("one.wav", "wb") as sound:
            sound.setparams((1, 2, 16_000, 0, "NONE", ""))
            sound.writeframes(np.arange(-200, 100, dtype="<i2").tobytes())
    else:
        from polygraphy.json import save_json  # type: ignore[import-untyped]

        save_json([{"x": np.ones((2, 10), np.float32)}], "one.json")
    Path("notes.json").write_text('{"labels": ["cat"]}', encoding="utf-8")
    assert f"(1 sample of one.{kind} beside the model" in look(capsys)


def test_what_is_no_sample_beside_the_model_is_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    save(ROWS.replace("{SIZE}", "{0.5}"))
    Path("empty.json").write_text("[]", encoding="utf-8")
    Path("broken.npz").write_bytes(b"PK\3\4")
    np.save("large.npy", np.ones((2_000_000, 10), np.float32))  # more than --memory
    assert "(2 generated samples)" in look(capsys, "--memory", "64MiB")


def test_a_sole_array_is_the_sole_input_under_any_name(capsys: pytest.CaptureFixture[str]) -> None:
    save(ROWS.replace("{SIZE}", "{0.5}"))
    np.savez("data.npz", pixels=np.ones((2, 10), np.float32))
    words = ("compare", "m.onnx", "--candidate", "ort", "--inputs", "data.npz", "--quiet")
    assert exit_status(*words, "--study", "s") == 0
    told = json.loads(Path("s", "study.json").read_text(encoding="utf-8"))["inputs"]
    assert told["origin"] == "data.npz, whose 'pixels' is taken as 'x'"
    np.savez("data.npz", pixels=np.ones((2, 9), np.float32))
    assert exit_status(*words) == 2
    assert "found the shape [2, 9]" in capsys.readouterr().err


def test_samples_beside_the_model_are_as_many_as_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    save(ROWS.replace("{SIZE}", "{0.5}"))
    for place in range(3):
        np.savez(f"{place}.npz", x=np.full((2, 10), place + 1, np.float32))
    assert "(1 sample of 0.npz beside the model" in look(capsys, "--samples", "1")
    for words, told in (
        (("--samples", "0"), "0 samples cannot be judged"),
        (("--stacked",), "--stacked says how data is read, and none is given"),
        (("--preprocess", "p.py:f"), "--preprocess says how data is read"),
    ):
        assert exit_status("m.onnx", *words) == 2
        assert told in capsys.readouterr().err


def test_a_sound_without_a_sound_is_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    save(SOUND)
    with wave.open("none.wav", "wb") as sound:
        sound.setparams((1, 2, 16_000, 0, "NONE", ""))
    assert "generated samples" in look(capsys)
