"""Where no cause is proved: what was ruled out, from which size on it would have been found, and that this size is true."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from command_line import exit_status, read_study
from parityscope.hypotheses.power import SURE_BITS, find_least_share
from parityscope.languages import say_in_language, speak_language
from parityscope.report.as_html import render_html
from parityscope.report.as_text import render_first_screen, render_text
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

NETWORK = """<ir_version: 8, opset_import: ["" : 17]> g (float[8,20] x) => (float[8,6] y) {
  a = MatMul(x, w)
  h = LeakyRelu<alpha = 0.1>(a)
  y = MatMul(h, v)
}"""
DRAW = np.random.default_rng(21)
WEIGHTS = {"w": DRAW.normal(size=(20, 32)).astype(np.float32), "v": DRAW.normal(size=(32, 6)).astype(np.float32)}
SAMPLES = [DRAW.normal(size=(8, 20)).astype(np.float32) for _ in range(2)]
NOISE = [DRAW.normal(size=(8, 32)) for _ in SAMPLES]
SET = "another attribute value"


def diagnose_with_share(folder: Path, share: float, shown: Collection[str] = ("a", "h")) -> dict[str, Any]:
    """A recording whose LeakyRelu has the default alpha (0.01), which makes `share` of its squared error, noise the rest."""
    for name in ("inputs", "recorded"):
        (folder / name).mkdir(parents=True)
    model = write_network(folder / "model.onnx", NETWORK, WEIGHTS)
    for number, (x, drawn) in enumerate(zip(SAMPLES, NOISE, strict=True)):
        a = x @ WEIGHTS["w"]
        fault = np.where(a < 0, -0.09 * a, 0.0).astype(np.float64)
        noise = drawn - fault * (drawn * fault).sum() / np.square(fault).sum()
        noise *= np.sqrt((1 / share - 1) * np.square(fault).sum() / np.square(noise).sum()) if share else 1.0
        h = (np.where(a < 0, 0.1 * a, a) + (fault if share else 0.0) + noise).astype(np.float32)
        np.savez(folder / "inputs" / f"{number}.npz", x=x)
        inside = {name: array for name, array in {"a": a, "h": h}.items() if name in shown}
        np.savez(folder / "recorded" / f"{number}.npz", **inside, y=h @ WEIGHTS["v"])
    words = ("diagnose", str(model), "--inputs", str(folder / "inputs"), "--quiet", "--study", str(folder / "study"))
    words = (*words, "--candidate", f"saved?path={folder / 'recorded'}")
    with pytest.MonkeyPatch.context() as typed:  # a study keeps how it was asked for
        typed.setattr("sys.argv", ["parityscope", *words])
        assert exit_status(*words) == 1
    return read_study(folder / "study")


@pytest.fixture(scope="module")
def unexplained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder and its study, in which nothing is explained."""
    folder = tmp_path_factory.mktemp("unexplained")
    return folder, diagnose_with_share(folder, 0.0)


def kinds_of(study: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What the finding about the layer says of every kind of fault."""
    (found,) = [one for one in study["findings"] if one["code"] == "FUS003"]
    assert found["site"]["tensor"] == "h"
    assert found["role"] != "cause"
    return {one["kind"]: one for one in found["ruled_out"]}


def test_the_size_follows_from_the_bits_that_are_saved() -> None:
    # What takes 12 bits must save 32 with 20 for chance: of 64 numbers, 32 log2(1 / (1 - s)) = 32 at s = 1/2.
    assert find_least_share(32 - SURE_BITS, 64) == pytest.approx(0.5)
    assert find_least_share(32 - SURE_BITS, 2) == pytest.approx(1 - 2.0**-32)


def test_a_fault_above_the_size_that_is_told_is_found_and_one_far_below_is_not(
    unexplained: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    told = kinds_of(unexplained[1])[SET]
    assert told["tried"] == told["generated"] > 0
    assert not told["in_part"]
    above = kinds_of(diagnose_with_share(tmp_path / "above", told["least"] * 1.15))[SET]
    assert above["in_part"]
    assert "alpha" in above["nearest"]
    assert above["most"] == pytest.approx(told["least"] * 1.15, rel=0.1)
    below = kinds_of(diagnose_with_share(tmp_path / "below", told["least"] / 4))[SET]
    assert not below["in_part"]


def test_the_answer_stands_in_every_form_of_the_report(unexplained: tuple[Path, dict[str, Any]]) -> None:
    study = unexplained[1]
    for told in (" ".join(render_text(study).split()), " ".join(render_html(study).split())):
        assert "the smallest region that holds the error is" in told
        assert "Ruled out by trying: faults that make" in told
        assert "found from" in told  # the table
        assert "Next: " in told


def test_every_kind_is_told_in_users_words(unexplained: tuple[Path, dict[str, Any]]) -> None:
    kinds = kinds_of(unexplained[1])
    assert len(kinds) > 5
    with speak_language("zh"):
        assert [kind for kind in kinds if say_in_language(kind) == kind] == []


def next_command(folder: Path, study: dict[str, Any]) -> list[str]:
    """The command that the first screen gives for the next measurement."""
    screen = render_first_screen(study, where=str(folder / "study" / "report.html"), width=1000)
    (line,) = [line.strip() for line in screen.splitlines() if line.strip().startswith("parityscope ")]
    return shlex.split(line)[1:]


def test_a_region_of_several_nodes_is_halved_by_what_is_recorded_next(
    unexplained: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = diagnose_with_share(tmp_path, 0.0, shown=("a",))
    (found,) = [one for one in study["findings"] if one["code"] == "FUS003"]
    assert found["details"]["record"] == ["h"]
    assert "record 'h' as well" in " ".join(render_text(study).split())
    asked = next_command(tmp_path, study)
    # It is recorded once more, with that tensor.
    (tmp_path / "recorded-again").symlink_to(unexplained[0] / "recorded")
    monkeypatch.chdir(tmp_path)
    assert exit_status(*asked, "--study", "again") == 1
    again = read_study(tmp_path / "again")
    assert again["suspects"][0]["region"] == [again["suspects"][0]["site"]["node"]]
    assert again["suspects"][0]["site"]["tensor"] == "h"


def test_a_region_of_one_node_is_reduced_for_the_runtimes_authors(
    unexplained: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    asked = next_command(*unexplained)
    assert asked == ["reduce", str(unexplained[0] / "study")]
    assert exit_status(*asked, "-o", str(tmp_path / "proof.zip"), "--quiet") == 0
    assert (tmp_path / "proof.zip").stat().st_size > 0
