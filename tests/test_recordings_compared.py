"""`compare a.json b.json`: two recordings of outputs, of any kind, without a model; a budget gives the verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from command_line import exit_status

if TYPE_CHECKING:
    from collections.abc import Callable

DRAW = np.random.default_rng(3)
LOGITS, SCORE = DRAW.normal(size=(2, 10)).astype(np.float32), np.array([0.25, 0.5], np.float32)
Outputs = dict[str, np.ndarray]


def save_npz(path: Path, outputs: Outputs) -> Path:
    np.savez(path.with_suffix(".npz"), **outputs)  # type: ignore[arg-type] # numpy's stub takes allow_pickle for one of them
    return path.with_suffix(".npz")


def save_npy(path: Path, outputs: Outputs) -> Path:
    np.save(path.with_suffix(".npy"), outputs["logits"])
    return path.with_suffix(".npy")


def save_polygraphy(path: Path, outputs: Outputs) -> Path:
    from polygraphy.comparator import IterationResult, RunResults

    found = RunResults()
    found.append(("trt-runner", [IterationResult(outputs=dict(outputs))]))
    found.save(str(path.with_suffix(".json")))
    return path.with_suffix(".json")


def save_trtexec(path: Path, outputs: Outputs) -> Path:
    entries = [
        {"name": name, "dimensions": "x".join(map(str, array.shape)), "values": array.ravel().tolist()}
        for name, array in outputs.items()
    ]
    path.with_suffix(".json").write_text(json.dumps(entries), encoding="utf-8")
    return path.with_suffix(".json")


def save_folder(path: Path, outputs: Outputs) -> Path:
    path.mkdir()
    for number in range(3):
        save_npz(path / f"{number}", {name: array + number for name, array in outputs.items()})
    return path


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def compared(*words: str) -> tuple[int, dict[str, Any]]:
    number = len(list(Path().glob("study-*")))
    code = exit_status("compare", *words, "--quiet", "--study", f"study-{number}")
    return code, json.loads(Path(f"study-{number}", "study.json").read_text("utf-8"))


@pytest.mark.parametrize("save", [save_npz, save_npy, save_polygraphy, save_trtexec, save_folder])
def test_a_budget_gives_the_verdict(save: Callable[[Path, Outputs], Path], capsys: pytest.CaptureFixture[str]) -> None:
    a = str(save(Path("a"), {"logits": LOGITS, "score": SCORE}))
    b = str(save(Path("b"), {"logits": LOGITS * np.float32(1.001), "score": SCORE * np.float32(1.001)}))
    code, found = compared(a, b, "--budget", "rel_l2=1e-2")
    assert (code, found["verdict"]) == (0, "within")
    assert found["inputs"]["samples"] == (3 if save is save_folder else 1)
    # Polygraphy and .npy keep every bit, trtexec prints six digits.
    assert 1e-4 < max(one["rel_l2"] for one in found["outputs"]) < 1.01e-3
    code, found = compared(a, b, "--budget", "rel_l2=1e-5")
    assert (code, found["verdict"]) == (1, "beyond")
    # No model says what arithmetic explains of it: nothing is judged that nobody gave a measure for.
    capsys.readouterr()
    code, found = compared(a, b)
    assert (code, found["verdict"]) == (3, "incomplete")
    assert "state a budget" in " ".join(capsys.readouterr().out.split())
    code, found = compared(a, a)
    assert (code, found["verdict"]) == (0, "within")
    assert found["model"]["path"] == a


def test_what_is_not_finite_on_one_side_needs_no_budget() -> None:
    a = save_npz(Path("a"), {"logits": LOGITS})
    b = save_npz(Path("b"), {"logits": np.where(LOGITS > 1, np.float32(np.nan), LOGITS)})
    code, found = compared(str(a), str(b))
    assert (code, found["verdict"]) == (1, "beyond")
    assert found["outputs"][0]["nonfinite"]["candidate"] == int((LOGITS > 1).sum())


def test_what_one_side_lacks_is_told() -> None:
    a, b = (
        save_npz(Path("a"), {"logits": LOGITS, "score": SCORE}),
        save_npz(Path("b"), {"logits": LOGITS, "extra": SCORE}),
    )
    code, found = compared(str(a), str(b))
    assert code == 3
    told = {skip["what"]: skip["reason"] for skip in found["skipped"]}
    assert told["tensor score"] == "it was not recorded"
    assert told["tensor extra"].startswith("it was recorded, and")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("compare", "a.npz"), "nothing is given to compare it with"),
        (("compare", "a.npz", "b.npz", "--candidate", "ort"), "say the candidate once"),
        (("compare", "a.npz", "gone.npz"), "there is no gone.npz"),
        (("compare", "a.npz", "ort"), "a.npz is a recording, which cannot be run"),
        (("compare", "a.npz", "b.npz", "--inputs", "a.npz"), "two recordings have no inputs"),
        (("compare", "a.npz", "b.npz", "--all-tensors"), "a.npz is a recording, and has no layers"),
        (("diagnose", "a.npz", "--candidate", "b.npz"), "a.npz is a recording, and has no layers"),
        (("compare", "empty.json", "b.npz"), "the recording holds no samples"),
        (("compare", "broken.npz", "b.npz"), "broken.npz"),
    ],
)
def test_what_cannot_be_is_one_error(words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        save_npz(Path(name), {"logits": LOGITS})
    Path("empty.json").write_text("[]", encoding="utf-8")
    Path("broken.npz").write_bytes(b"PK\3\4")
    assert exit_status(*words) == 2
    said = capsys.readouterr().err
    assert says in said
    assert "fix:" in said
    assert not list(Path().glob("parityscope-*"))
