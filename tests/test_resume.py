"""An interrupted run: what was recorded is used again by the same run, and by no other."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.parser
import pytest

from command_line import in_this_process, read_study
from parityscope.backends.recording import RecordingRequest, observable_tensors, record_trace
from parityscope.backends.resuming import FACTS
from parityscope.backends.targets import parse_target
from parityscope.case.formats.npz import write_npz
from parityscope.case.inputs import load_inputs
from parityscope.case.model import load_model
from parityscope.comparison import Channels, Exact, Floats, Histogram, Moments, Scores, Sketch, Statistics
from parityscope.errors import ParityError
from parityscope.private_folders import MARKER
from parityscope.study import Request, open_request, prepare_folder, run_facts
from parityscope.workers.packing import pack_record, unpack_record

if TYPE_CHECKING:
    from pathlib import Path

    from parityscope.trace import Trace

LAYERS = 8
SIDE = 256  # 4 x 256 x 256 float32 is 1 MiB: with --memory 1MiB every tensor is a chunk of its own
TIMES = {"created", "command", "timings"}
CANDIDATE = "sim:f16"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chain of convolutions, slow enough to be killed half-way, and one sample."""
    path = tmp_path_factory.mktemp("case")
    nodes = [f"t{number + 1} = Conv <pads = [3, 3, 3, 3]> (t{number}, w)" for number in range(LAYERS - 1)]
    body = "\n".join(["t0 = Relu(x)", *nodes, f"y = Relu(t{LAYERS - 1})"])
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[1,4,{SIDE},{SIDE}] x) => (float[1,4,{SIDE},{SIDE}] y) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    generator = np.random.default_rng(7)
    weights = generator.standard_normal((4, 4, 7, 7)).astype(np.float32) / 14  # 1 / sqrt(4 * 7 * 7): the size stays
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(model, path / "m.onnx")
    write_npz(path / "x.npz", {"x": generator.standard_normal((1, 4, SIDE, SIDE)).astype(np.float32)})
    return path


LOCALIZE = ("localize", "--keep-tensors")
COMPARE = ("compare", "--all-tensors")


def words(study: Path, *, candidate: str = CANDIDATE, verb: tuple[str, str] = LOCALIZE) -> list[str]:
    case = ["m.onnx", "--candidate", candidate, "--inputs", "x.npz", "--memory", "1MiB", "--study", str(study)]
    return [sys.executable, "-m", "parityscope", verb[0], *case, verb[1]]


def run(
    folder: Path, study: Path, *, candidate: str = CANDIDATE, verb: tuple[str, str] = LOCALIZE
) -> subprocess.CompletedProcess[str]:
    """The command in this process: what is interrupted is another one."""
    return in_this_process(*words(study, candidate=candidate, verb=verb)[3:], folder=folder)


def scratch_of(study: Path) -> Path:
    return study.with_name(f".{study.name}.part")


def notes(study: Path) -> list[Path]:
    return sorted((scratch_of(study) / "tensors").glob("*/*-[0-9][0-9][0-9].note"))


def interrupted(
    folder: Path, study: Path, with_signal: signal.Signals, verb: tuple[str, str] = LOCALIZE
) -> tuple[int, str]:
    """Starts the command, sends the signal to all its processes once two chunks are recorded; (status, stderr)."""
    process = subprocess.Popen(
        words(study, verb=verb),
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        end = time.monotonic() + 60
        while len(notes(study)) < 2 and process.poll() is None and time.monotonic() < end:
            time.sleep(0.002)
        assert process.poll() is None, "the run ended before it could be interrupted"
        os.killpg(process.pid, with_signal)
        told = process.communicate(timeout=60)[1]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return process.returncode, told


def told_by(study: Path) -> dict[str, Any]:
    """The document without times: what two runs of one case must agree in."""
    document = read_study(study)
    for key in TIMES:
        del document[key]
    for side in ("reference", "candidate"):
        del document[side]["seconds"]
    return document


@pytest.fixture(scope="module")
def undisturbed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    study = tmp_path_factory.mktemp("undisturbed") / "study"
    done = run(folder, study)
    assert done.returncode == 0, done.stderr
    assert not list(study.rglob("*.json.part"))
    assert [path.name for path in study.rglob("*") if path.suffix in {".json", ".note"}] == ["study.json"]
    return told_by(study)


def test_the_same_command_goes_on_and_no_other(folder: Path, undisturbed: dict[str, Any], tmp_path: Path) -> None:
    study = tmp_path / "study"
    status, told = interrupted(folder, study, signal.SIGINT)
    assert not study.exists()
    assert status == 130
    assert f"--study {study}" in told
    before = notes(study)
    assert 2 <= len(before) < LAYERS
    files = {
        path: path.stat().st_mtime_ns
        for note in before
        for path in note.parent.glob(f"{note.stem.rpartition('-')[0]}-*-{note.stem.rpartition('-')[2]}.safetensors")
    }
    assert len(files) == len(before)
    refused = run(folder, study, candidate="sim:bf16")
    assert refused.returncode == 2
    assert "another case" in refused.stderr
    assert "changed: candidate" in refused.stderr
    assert f"rm -r {scratch_of(study)}" in refused.stderr
    assert notes(study) == before
    done = run(folder, study)
    assert done.returncode == 0, done.stderr
    assert told_by(study) == undisturbed
    for path, modified in files.items():
        moved = study / path.relative_to(scratch_of(study))
        assert moved.stat().st_mtime_ns == modified, "a chunk that was whole was recorded again"
    assert not scratch_of(study).exists()
    assert [path.name for path in study.rglob("*") if path.suffix in {".json", ".note"}] == ["study.json"]


@pytest.fixture(scope="module")
def compared(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    study = tmp_path_factory.mktemp("compared") / "study"
    assert run(folder, study, verb=COMPARE).returncode == 0
    return told_by(study)


def test_a_comparison_of_all_tensors_goes_on(folder: Path, compared: dict[str, Any], tmp_path: Path) -> None:
    study = tmp_path / "study"
    interrupted(folder, study, signal.SIGKILL, COMPARE)
    assert not study.exists()
    before = notes(study)
    assert 2 <= len(before) < LAYERS
    refused = run(folder, study, candidate="sim:bf16", verb=COMPARE)
    assert refused.returncode == 2
    assert "changed: candidate" in refused.stderr
    assert notes(study) == before
    # A number in the first note that nobody could have measured: the study tells whether it was used. A damaged one is not.
    first, second = before[:2]
    planted = with_other_distances(first)
    second.write_bytes(second.read_bytes()[:-1] + b"?")
    done = run(folder, study, verb=COMPARE)
    assert done.returncode == 0, done.stderr
    assert not scratch_of(study).exists()
    assert [path.name for path in study.rglob("*") if path.suffix in {".json", ".note"}] == ["study.json"]
    found = told_by(study)
    tensors = {row["name"]: row for row in found["tensors"]}
    expected = {row["name"]: row for row in compared["tensors"]}
    assert {name for name, row in tensors.items() if row != expected[name]} == planted
    assert tensors.keys() == expected.keys()
    assert {name: found[name] for name in ("outputs", "verdict", "skipped")} == {
        name: compared[name] for name in ("outputs", "verdict", "skipped")
    }


@dataclass(frozen=True)
class Measured:
    """A chunk's statistics, as notes hold them."""

    totals: dict[str, Statistics]
    problems: dict[str, str]


def with_other_distances(note: Path) -> set[str]:
    """Changes what a note says of the distances of tensors, and signs it again; the names of its tensors."""
    classes = (Measured, Statistics, Floats, Exact, Moments, Histogram, Sketch, Channels, Scores)
    (key, names), told = unpack_record(note.read_bytes(), classes)
    totals = {name: replace(one, floats=replace(one.floats, ulp=9e9)) for name, one in told.totals.items()}
    note.write_bytes(pack_record(((key, names), replace(told, totals=totals))))
    return set(names)


def facts(scratch: Path, **changed: str) -> None:
    scratch.mkdir(parents=True, exist_ok=True)
    (scratch / FACTS).write_text(
        json.dumps({"schema": "parityscope-resume/1", "model": "m", **changed}), encoding="utf-8"
    )


def recorded(folder: Path, scratch: Path, target: str = "ort") -> tuple[Trace, dict[str, int]]:
    """A trace of every tensor, and when each of its files was written, by name."""
    model = load_model(folder / "m.onnx")
    inputs = load_inputs(model, folder / "x.npz", spool=scratch / "spool")
    layers = scratch / "tensors" / "layers"
    request = RecordingRequest(
        samples=(0,), tensors=tuple(observable_tensors(model)), folder=layers, memory=8 << 20, label="candidate"
    )
    trace = record_trace(model, inputs, parse_target(target), request)
    return trace, {path.name: path.stat().st_mtime_ns for path in layers.glob("*.safetensors")}


def same(one: Trace, other: Trace) -> bool:
    return one.names == other.names and all(np.array_equal(one.get(0, name), other.get(0, name)) for name in one.names)


def changed(before: dict[str, int], after: dict[str, int]) -> list[str]:
    return [name for name in before if before[name] != after[name]]


@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing", "note"])
def test_a_damaged_chunk_is_recorded_again(damage: str, folder: Path, tmp_path: Path) -> None:
    facts(tmp_path)
    first, before = recorded(folder, tmp_path)
    values = {name: np.array(first.get(0, name)) for name in first.names}
    # 8 tensors of 1 MiB, and half of 8 MiB for a chunk: four tensors a chunk.
    assert len(before) == LAYERS // 4
    victim = tmp_path / "tensors" / "layers" / sorted(before)[1]
    data = victim.read_bytes()
    match damage:
        case "truncated":
            victim.write_bytes(data[: len(data) // 2])
        case "flipped":
            victim.write_bytes(data[:-5] + bytes([data[-5] ^ 1]) + data[-4:])
        case "missing":
            victim.unlink()
        case "note":
            (victim.parent / "candidate-001.note").write_text('{"key": ', encoding="utf-8")
    second, after = recorded(folder, tmp_path)
    assert changed(before, after) == [victim.name]
    assert all(np.array_equal(values[name], second.get(0, name)) for name in values)


def test_nothing_is_recorded_twice(folder: Path, tmp_path: Path) -> None:
    facts(tmp_path)
    first, before = recorded(folder, tmp_path)
    second, after = recorded(folder, tmp_path)
    assert changed(before, after) == []
    assert same(first, second)
    assert (first.disturbs, first.absent, first.outputs) == (second.disturbs, second.absent, second.outputs)


def test_other_facts_or_another_target_use_nothing_again(folder: Path, tmp_path: Path) -> None:
    facts(tmp_path)
    _, before = recorded(folder, tmp_path)
    facts(tmp_path, model="another")
    _, after = recorded(folder, tmp_path)
    assert changed(before, after) == sorted(before, key=list(before).index)
    _, again = recorded(folder, tmp_path, "ort?threads=1")
    assert len(changed(after, again)) == len(before)


def test_a_folder_without_facts_keeps_no_notes(folder: Path, tmp_path: Path) -> None:
    recorded(folder, tmp_path)
    assert not list(tmp_path.rglob("*.json"))


def test_a_program_is_always_run_again(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { h = Exp(x)  y = Neg(h) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    write_npz(tmp_path / "x.npz", {"x": np.ones(2, np.float32)})
    program = tmp_path / "infer.py"
    program.write_text(
        f"#!{sys.executable}\nimport sys, numpy as np\n"
        f"open({str(tmp_path / 'calls')!r}, 'a').write('.')\n"
        "h = np.exp(np.load(sys.argv[1] + '/000000.npz')['x'])\n"
        "np.savez(sys.argv[2] + '/000000.npz', h=h, y=-h)\n",
        encoding="utf-8",
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    facts(tmp_path)
    recorded(tmp_path, tmp_path, f"command?run={program}")
    once = len((tmp_path / "calls").read_text(encoding="utf-8"))
    recorded(tmp_path, tmp_path, f"command?run={program}")
    assert len((tmp_path / "calls").read_text(encoding="utf-8")) == 2 * once
    assert not list((tmp_path / "tensors").rglob("*.json"))


def test_one_process_at_a_time(tmp_path: Path) -> None:
    again = prepare_folder(tmp_path / "s", {"a": 1})
    with (
        prepare_folder(tmp_path / "s", {"a": 1}),
        pytest.raises(ParityError, match="another process is writing"),
        again,
    ):
        pass


def _failing(folder: Path, side: str, facts: dict[str, int] | None) -> list[str]:
    """The files that were there at the start of a run that then records a chunk of a side, and fails."""
    found: list[str] = []
    with (
        pytest.raises(ParityError, match="no room") as raised,
        prepare_folder(folder / "s", facts) as scratch,
    ):
        found += [path.name for path in (scratch / "tensors").rglob("*.note")]
        (scratch / "tensors").mkdir(exist_ok=True)
        (scratch / "tensors" / f"{side}-000.note").write_text("{}", encoding="utf-8")
        raise ParityError("no room", fix="make room")
    assert ("goes on from there" in raised.value.fix) == scratch_of(folder / "s").exists()
    return found


@pytest.mark.parametrize(("side", "facts"), [("reference", {"a": 1}), ("candidate", None)])
def test_a_failure_before_the_candidate_gave_anything_leaves_nothing(
    side: str, facts: dict[str, int] | None, tmp_path: Path
) -> None:
    assert _failing(tmp_path, side, facts) == []
    assert list(tmp_path.iterdir()) == []


def test_a_failure_keeps_what_was_done_until_what_it_depends_on_is_mended(tmp_path: Path) -> None:
    assert _failing(tmp_path, "candidate", {"a": 1}) == []
    assert _failing(tmp_path, "candidate", {"a": 1}) == ["candidate-000.note"]
    assert _failing(tmp_path, "candidate", {"a": 2}) == []


def test_a_candidate_that_fails_late_goes_on_where_it_failed(folder: Path, tmp_path: Path) -> None:
    """The disk is full, or the licence gone, after most of the work: it is not done again."""
    study = tmp_path / "study"
    record = words(study)
    failing = (
        "import sys; from parityscope.study import _examining\n"
        "from parityscope.errors import ParityError\n"
        "def fail(*_, **__): raise ParityError('no room', fix='make room')\n"
        "import parityscope.study.document as one; one.document_of = fail\n"
        "for module in list(sys.modules.values()):\n"
        "    if getattr(module, '__name__', '').startswith('parityscope.study') and hasattr(module, 'document_of'):\n"
        "        module.document_of = fail\n"
        "from parityscope.cli import main; main(sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", failing, *record[3:]], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "goes on from there" in done.stderr
    kept = {path.name: path.stat().st_mtime_ns for path in notes(study)}
    assert kept
    assert run(folder, study).returncode == 0
    assert not scratch_of(study).exists()


def test_an_interrupt_before_anything_was_recorded_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), prepare_folder(tmp_path / "s", {"a": 1}):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_what_holds_no_tensors_is_used_afresh(tmp_path: Path) -> None:
    scratch = scratch_of(tmp_path / "s")
    facts(scratch, model="another")
    (scratch / MARKER).touch()
    (scratch / "tensors").mkdir()
    (scratch / "tensors" / "candidate-000000-000.safetensors.part").write_bytes(b"half")
    with prepare_folder(tmp_path / "s", {"a": 1}) as given:
        assert given == scratch
        assert not list(given.rglob("*.part"))
    assert list((tmp_path / "s").iterdir()) == []


def test_a_folder_that_is_not_ours_is_never_emptied(tmp_path: Path) -> None:
    scratch = scratch_of(tmp_path / "s")
    scratch.mkdir()
    (scratch / "thesis.txt").write_text("years of work", encoding="utf-8")
    with pytest.raises(ParityError, match="no scratch folder of yours"), prepare_folder(tmp_path / "s", None):
        pass
    assert (scratch / "thesis.txt").read_text(encoding="utf-8") == "years of work"


def test_no_link_is_followed_to_somebody_elses_files(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "thesis.txt").write_text("years of work", encoding="utf-8")
    scratch = scratch_of(tmp_path / "s")
    scratch.symlink_to(theirs)
    with pytest.raises(ParityError, match="no scratch folder of yours"), prepare_folder(tmp_path / "s", None):
        pass
    scratch.unlink()
    scratch.mkdir()
    (scratch / MARKER).symlink_to(theirs / "thesis.txt")
    with pytest.raises(ParityError), prepare_folder(tmp_path / "s", None):
        pass
    assert [one.read_text(encoding="utf-8") for one in theirs.iterdir()] == ["years of work"]


@pytest.mark.parametrize("candidate", ["python?call={}:infer", "command?run=python%20{}"])
def test_code_that_was_changed_makes_another_run(tmp_path: Path, candidate: str) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Neg(x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    code = tmp_path / "deploy.py"
    request = Request(model=tmp_path / "m.onnx", candidate=candidate.format(code))
    facts = []
    for factor in (1, 1, 20):
        code.write_text(f"def infer(feeds):\n    return -{factor} * feeds['x']\n", "utf-8")
        with open_request(request) as opened:
            facts.append(run_facts(opened))
    assert facts[0] == facts[1] != facts[2]
