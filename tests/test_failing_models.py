"""Trained networks that FP16 breaks by themselves: repaired to what they do in FP32, without a node in FP32.

The whole measurement is bench/failing_models.py; here a part of its files and melodies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.case import load_inputs, load_model
from parityscope.records import Budget, Policy
from parityscope.repairs.search import RepairTask, search_repair
from proving.models.fetching import require
from proving.models.labelled_files import file_tokens, labelled_files, magika_labels, read_list
from proving.models.notes import Note, heard, melody, note_f1
from simulated import detype, simulate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from parityscope.repairs.search import RepairOutcome

    Arrays = Mapping[str, np.ndarray]

# Of these every fourth file.
SMALL = ("react-native-safe-area-context", "node-gyp", "python-docx", "python-pptx")


def fixed(identity: str, samples: Sequence[Arrays], budget: Budget, folder: Path) -> tuple[RepairOutcome, Path]:
    (folder / "data").mkdir()
    (folder / "work").mkdir()
    for number, arrays in enumerate(samples):
        np.savez(folder / "data" / f"{number:03d}.npz", **arrays)
    model = load_model(require(identity))
    inputs = load_inputs(model, folder / "data", spool=folder / "spool")
    task = RepairTask(model=model, inputs=inputs, low="f16", policy=Policy(budgets=(budget,)), threads=2)
    return search_repair(task, folder / "work", folder / "fixed.onnx"), folder / "fixed.onnx"


def three(identity: str, path: Path, samples: Sequence[Arrays]) -> list[list[Arrays]]:
    """Outputs in FP32, with everything in FP16, and of the repaired file."""
    model = load_model(require(identity))
    runs = [
        open_session(model.graph(), threads=2),
        simulate(model.graph(), "f16"),
        detype(load_model(path).graph()),
    ]
    return [[run(sample) for sample in samples] for run in runs]


def test_the_list_of_files_is_large_and_varied_and_pinned() -> None:
    listed = [entry for package in read_list() for entry in package["files"]]
    assert len(listed) >= 150
    assert len({label for label, _, _ in listed}) >= 15
    assert len({sha256 for _, _, sha256 in listed}) == len(listed)
    assert all(len(bytes.fromhex(sha256)) == 32 for _, _, sha256 in listed)
    assert all(package["version"] and package["licence"] for package in read_list())


def test_tokens_are_both_ends_without_white_space_on_the_outside() -> None:
    tokens = file_tokens(b"\n  ab c \n")[0]
    assert list(tokens[:6]) == [*b"ab c \n"]
    assert list(tokens[-8:]) == [256, *b"\n  ab c"][-8:]
    assert (tokens[6:-7] == 256).all()
    long = bytes(range(256)) * 40
    tokens = file_tokens(long)[0]
    assert bytes(tokens[:1024].astype(np.uint8)) == long[:1024]
    assert bytes(tokens[1024:].astype(np.uint8)) == long[-1024:]


def test_notes_agree_by_pitch_and_onset() -> None:
    def note(pitch: int, start: float) -> Note:
        return Note(pitch=pitch, start=start, end=start + 0.3)

    right = [note(60, 0.1), note(64, 0.5), note(60, 1.0)]
    assert note_f1(right, right) == note_f1([], []) == 1.0
    assert note_f1(right, [note(60, 0.14), note(64, 0.5), note(60, 1.06)]) == pytest.approx(2 * 2 / 6)
    assert note_f1(right, [note(60, 0.1), note(60, 0.12)]) == pytest.approx(2 * 1 / 5)  # each is found once
    assert note_f1(right, []) == 0.0


def test_notes_are_read_off_maps() -> None:
    """Key 39 is MIDI 60: loud from frame 20 to 59 with an onset at 20, beside a note of eight frames, which is too short."""
    frames, onsets = np.zeros((1, 172, 88), np.float32), np.zeros((1, 172, 88), np.float32)
    frames[0, 20:60, 39] = 0.8
    onsets[0, 20, 39] = 0.9
    frames[0, 100:108, 45] = 0.8
    onsets[0, 100, 45] = 0.9
    names = ("StatefulPartitionedCall:1", "StatefulPartitionedCall:2")
    [found] = heard(dict(zip(names, (frames, onsets), strict=True)))
    hop = 256 / 22050
    assert (found.pitch, found.start, found.end) == (60, pytest.approx(20 * hop), pytest.approx(60 * hop))
    assert heard(dict(zip(names, (frames * np.nan, onsets), strict=True))) == []


@pytest.mark.model
def test_file_types_are_told_as_in_full_precision(tmp_path: Path) -> None:
    require("magika-config")
    listed, labels = labelled_files(SMALL)[::4], magika_labels()
    samples = [{"bytes": file_tokens(one.path.read_bytes())} for one in listed]
    right = np.array([labels[one.label] for one in listed])
    budget = Budget(output="", metric="top1_agreement", limit=1.0, reason="a test")
    found, path = fixed("magika", samples[::2], budget, tmp_path)
    accuracy = [
        float(np.mean([next(iter(outputs.values()))[0].argmax() for outputs in each] == right))
        for each in three("magika", path, samples)
    ]
    assert not found.kept
    assert accuracy[0] > 0.8
    assert accuracy[1] < 0.2
    assert accuracy[2] >= accuracy[0] - 0.005


@pytest.mark.model
def test_notes_are_heard_as_in_full_precision(tmp_path: Path) -> None:
    made = [melody(seed) for seed in range(2)]
    samples = [arrays for arrays, _ in made]
    # Of quiet parts of the spectrum subnormal numbers keep a digit or two: 5 % of the maps, and no note.
    budget = Budget(output="", metric="rel_l2", limit=0.1, reason="a test")
    found, path = fixed("pitch", samples, budget, tmp_path)
    full, low, repaired = three("pitch", path, samples)
    assert {edit.repair for edit in found.edits} == {"log_of_norm", "scaled_norm"}
    assert not found.kept
    assert all(np.isnan(array).all() for outputs in low for array in outputs.values())
    assert all(note_f1(heard(one), heard(other)) == 1.0 for one, other in zip(full, repaired, strict=True))
    assert np.mean([note_f1(notes, heard(one)) for (_, notes), one in zip(made, repaired, strict=True)]) > 0.9
