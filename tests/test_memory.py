"""What is held in memory: two large models one after the other, and pages of files that can be read again."""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from examinations import examination_of
from one_sample import one_sample
from parityscope.backends import Capture, both
from parityscope.backends.both import open_both
from parityscope.backends.opening import model_of, open_target
from parityscope.backends.targets import parse_target
from parityscope.case import Case, load_model
from parityscope.errors import ParityError
from parityscope.hypotheses.from_other_graph import constants
from parityscope.memory import allow_memory, allowed_memory, drop_mapped_pages, with_room_for_calls
from parityscope.records import Policy
from parityscope.study.bench import open_bench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from parityscope.backends import Session
    from parityscope.case import Model, Sample
    from parityscope.records import Target

WIDTH = 256  # weights of 256 KiB


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """One product with a weight, and a Tanh."""
    body = "p = MatMul (x, w) y = Tanh (p)"
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[2,{WIDTH}] x) => (float[2,{WIDTH}] y) {{ {body} }}'
    found = onnx.parser.parse_model(text)
    weight = np.random.default_rng(3).standard_normal((WIDTH, WIDTH)).astype(np.float32) / 16
    found.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    path = tmp_path_factory.mktemp("model") / "m.onnx"
    onnx.save(found, path)
    return load_model(path)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was opened and closed, in this order; the second sample makes an isolated reference fail."""
    told: list[str] = []

    @contextlib.contextmanager
    def watched(model: Model, target: Target, capture: Capture) -> Iterator[Session]:
        level = target.option("optimization")
        told.append(f"open {level}")
        with open_target(model, target, capture) as session:
            yield session
        told.append(f"close {level}")

    monkeypatch.setattr(both, "open_target", watched)
    return told


@pytest.fixture
def little_memory() -> Iterator[None]:
    before = allowed_memory()
    allow_memory(WIDTH * WIDTH)
    yield
    allow_memory(before)


SIDES = parse_target("ort?optimization=basic"), parse_target("ort?optimization=disabled")
SAMPLES = [
    replace(one_sample({"x": np.full((2, WIDTH), scale, np.float32)}).sample(0), index=index)
    for index, scale in enumerate((0.5, 0.25, 2.0))
]


def test_small_models_are_open_together(model: Model, opened: list[str]) -> None:
    with open_both(model, *SIDES, SAMPLES) as (reference, candidate):
        assert sorted(opened) == ["open basic", "open disabled"]
        assert reference.spent == 0.0
        reference.run(SAMPLES[0])
        candidate.run(SAMPLES[0])


@pytest.mark.usefixtures("little_memory")
def test_large_models_are_open_one_after_the_other_and_answer_as_before(model: Model, opened: list[str]) -> None:
    with open_target(model, SIDES[0], Capture()) as session:
        expected = [session.run(sample)["y"].copy() for sample in SAMPLES]
    with open_both(model, *SIDES, iter(SAMPLES)) as (reference, candidate):
        assert opened == ["open basic", "close basic", "open disabled"]
        assert reference.spent > 0.0
        for sample, right in zip(SAMPLES, expected, strict=True):
            assert np.array_equal(reference.run(sample)["y"], right)
            assert np.allclose(candidate.run(sample)["y"], right, atol=1e-5)
    assert opened[-1] == "close disabled"


@pytest.mark.usefixtures("little_memory")
def test_a_reference_that_failed_fails_where_it_did(
    model: Model, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    watched: Callable[..., AbstractContextManager[Session]] = vars(both)["open_target"]

    @contextlib.contextmanager
    def failing(model: Model, target: Target, capture: Capture) -> Iterator[Session]:
        with watched(model, target, capture) as session:

            def run(sample: Sample) -> Mapping[str, np.ndarray]:
                if sample.index == 1 and target == SIDES[0]:
                    raise ParityError("no answer", fix="none")
                found: Mapping[str, np.ndarray] = session.run(sample)
                return found

            yield replace(session, run=run)

    monkeypatch.setattr(both, "open_target", failing)
    with open_both(model, *SIDES, SAMPLES) as (reference, candidate):
        assert reference.run(SAMPLES[0])["y"].shape == (2, WIDTH)
        with pytest.raises(ParityError, match="no answer"):
            reference.run(SAMPLES[1])
        assert candidate.run(SAMPLES[1])["y"].shape == (2, WIDTH)
    assert opened == ["open basic", "close basic", "open disabled", "close disabled"]


def resident_of(name: str) -> int:
    """Bytes of the mapping of a file that are with this process."""
    found, inside = 0, False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        if "-" in line.partition(" ")[0]:
            inside = line.endswith(name)
        elif inside and line.startswith("Rss:"):
            found += int(line.split()[1]) * 1024
    return found


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the kernel tells no mappings")
def test_pages_of_mapped_files_are_given_back_and_read_again(tmp_path: Path) -> None:
    path, written = tmp_path / "weights with a blank.bin", np.arange(1 << 20, dtype=np.uint32)
    written.tofile(path)
    with path.open("rb") as file:
        array = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint32)
    assert np.array_equal(array, written)
    assert resident_of(path.name) == written.nbytes
    drop_mapped_pages()
    assert resident_of(path.name) == 0
    assert np.array_equal(array, written)


def test_a_model_is_read_again_where_only_the_file_of_its_weights_changed(tmp_path: Path) -> None:
    weight = np.ones((WIDTH, WIDTH), np.float32)
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[2,{WIDTH}] x) => (float[2,{WIDTH}] y) {{ y = MatMul (x, w) }}'
    written = onnx.parser.parse_model(text)
    written.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    path = tmp_path / "m.onnx"
    onnx.save(written, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    for file in (path, tmp_path / "w.bin"):
        os.utime(file, ns=(0, 1_000_000_000))
    reference = load_model(path)
    target = parse_target(f"ort?model={path}")
    first = model_of(reference, target)
    assert model_of(reference, target) is first
    (weight * 2).tofile(tmp_path / "w.bin")
    again = model_of(reference, target)
    assert again.sha256 != first.sha256
    with open_target(reference, target, Capture()) as session:
        assert session.run(SAMPLES[0])["y"][0, 0] == pytest.approx(WIDTH)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda array: array * np.float32(1.25), "times 1.25 (told by"),
        (lambda array: np.where(np.arange(len(array))[:, None] == 7, 0, array), "channel 7: all zero"),
        (lambda array: array.astype(np.float16).astype(np.float32), "rounded to float16 (told by"),
    ],
)
def test_what_happened_to_a_very_large_constant_is_told_of_a_part(
    change: Callable[[np.ndarray], np.ndarray], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "LARGEST", 1000)
    before = np.random.default_rng(1).standard_normal((64, 80)).astype(np.float32)
    after = change(before).astype(np.float32)
    assert constants.change_of(before, after).words.startswith(words)
    assert constants.are_identical(after, after.copy())
    assert not constants.are_identical(before, after)
    assert constants.have_same_elements(before, before * np.float32(1 + 1e-7))
    assert not constants.have_same_elements(before, after)


def test_of_large_models_one_session_of_a_bench_is_open_at_a_time(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_now, most = [0], [0]

    @contextlib.contextmanager
    def counted(model: Model, target: Target, capture: Capture) -> Iterator[Session]:
        open_now[0] += 1
        most[0] = max(most[0], open_now[0])
        with open_target(model, target, capture) as session:
            yield session
        open_now[0] -= 1

    monkeypatch.setattr("parityscope.study.bench.open_target", counted)
    inputs = one_sample({"x": np.ones((2, WIDTH), np.float32)})
    case = Case(name="large", model=model, inputs=inputs, policy=Policy(declared="f32"))
    examination = examination_of(case, "ort?optimization=disabled", reference="ort?optimization=basic")
    arrays = {"x": np.zeros((2, WIDTH), np.float32)}
    before = allowed_memory()
    for allowed, wanted in ((WIDTH * WIDTH, 1), (1 << 30, 2)):
        allow_memory(allowed)
        most[0] = 0
        try:
            with open_bench(examination) as bench:
                answer = bench.outputs(arrays)["y"]
                assert bench.honest is not None
                for run in (bench.honest, bench.outputs, bench.honest):
                    assert np.array_equal(run(arrays)["y"], answer)
        finally:
            allow_memory(before)
        assert (most[0], open_now[0]) == (wanted, 0)


def test_calls_at_no_depth_take_pages_from_the_system_again_and_again() -> None:
    calls = 400

    def called() -> None:
        pass

    called.__code__ = called.__code__.replace(co_stacksize=200)  # as much as a call with many variables holds

    def taken_at(depth: int) -> int:
        """Pages that were touched for the first time by calls at this depth, which are the same each time."""
        if depth:
            return taken_at(depth - 1)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(calls):
            called()
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    # The end of a chunk of Python's own lies within these depths, where each call takes a page or more.
    assert max(map(with_room_for_calls(taken_at), range(300))) < calls // 2
