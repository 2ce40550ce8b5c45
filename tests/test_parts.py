"""Long recordings in several parts: what is introduced does not depend on how many, even where every session differs."""

from __future__ import annotations

import contextlib
import functools
import itertools
import stat
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from examinations import examination_of
from hardware import needs_bfloat16
from one_sample import one_sample
from parityscope.backends import Session, backend_named
from parityscope.backends.opening import model_of
from parityscope.backends.parts import PartsPlan, next_part, order_with_outputs
from parityscope.backends.recording import RecordingRequest, observable_tensors, record_trace
from parityscope.backends.targets import parse_target
from parityscope.case import Case, Inputs, Sample, load_model
from parityscope.localization import LocalizationOptions, Sides, localize, reads_of
from parityscope.records import Policy
from parityscope.study import examine_request
from proving.models.fetching import ocr_rec_input, rendered_line, require

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.backends import Backend, Capture
    from parityscope.case import Model
    from parityscope.records import Localization, Target
    from parityscope.trace import Trace

SIZE = 64  # elements of every tensor: 256 bytes
NBYTES = 4 * SIZE
FAULT = 0.5
# Values stay below 4 (|x| <= 1, at most ten constants of 0.1, the fault, and the sessions' shifts of up to 0.2), where an ulp is
# 2^-22. A tensor is one node here, and what one rounding of it or of its tanh introduces is below eight of them.
ROUNDING = 8 * 2.0**-22


def graph_of(wiring: list[tuple[str, int, int]], outputs: set[int], faulty: int, shift: float) -> onnx.ModelProto:
    """t0 = x + s0, then t(i) = op(t(j)) or t(j) + t(k), each plus a constant of its own; the faulty one's is `shift`."""
    nodes = []
    for place, (kind, one, other) in enumerate([("Start", 0, 0), *wiring]):
        first, second = (f"t{min(index, place - 1)}" for index in (one, other))
        match kind:
            case "Start":
                inner = "x"
            case "Join":
                nodes += [
                    helper.make_node("Add", [first, second], [f"sum{place}"]),
                    helper.make_node("Tanh", [f"sum{place}"], [f"u{place}"]),
                ]
                inner = f"u{place}"
            case _:
                nodes.append(helper.make_node(kind, [first], [f"u{place}"]))
                inner = f"u{place}"
        nodes.append(helper.make_node("Add", [inner, f"s{place}"], [f"t{place}"]))
    last = len(wiring)
    shapes = {f"t{index}": [SIZE] for index in sorted(outputs | {last})}
    return helper.make_model(
        helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [SIZE])],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()],
            [
                numpy_helper.from_array(np.full(1, shift if index == faulty else 0.1, np.float32), f"s{index}")
                for index in range(last + 1)
            ],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )


def restless(real: Backend) -> Backend:
    """ONNX Runtime, but that each session with intermediate tensors shifts its inputs by another amount."""
    number = itertools.count()

    @contextlib.contextmanager
    def opened(model: Model, target: Target, capture: Capture) -> Iterator[Session]:
        shift = np.float32(0.01 * next(number) if capture.tensors else 0.0)

        def shifted(sample: Sample) -> Sample:
            return replace(sample, arrays={name: array + shift for name, array in sample.arrays.items()})

        with real.open(model, target, capture) as session:
            yield replace(session, run=lambda sample: session.run(shifted(sample)))

    return replace(real, open=opened)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    sides: Sides
    localization: Localization

    @property
    def introduced(self) -> dict[str, float]:
        return {suspect.site.tensor: suspect.introduced for suspect in self.localization.suspects}


def steady(model: Model, inputs: Inputs, folder: Path) -> Trace:
    request = RecordingRequest(samples=(0,), tensors=tuple(observable_tensors(model)), folder=folder, label="reference")
    return record_trace(model, inputs, parse_target("ort?optimization=disabled"), request)


def recorded(model: Model, inputs: Inputs, reference: Trace, target: Target, folder: Path, memory: int) -> Recorded:
    pairing = {name: name for name in [*observable_tensors(model), *(value.name for value in model.outputs)]}
    names = tuple(observable_tensors(model))
    own = model_of(model, target)

    def reads() -> dict[str, tuple[str, ...]]:
        return reads_of(model.graph(), pairing, {*names, *(value.name for value in own.outputs)})

    request = RecordingRequest(
        samples=(0,), tensors=names, folder=folder, memory=memory, label="candidate", reads=reads
    )
    candidate = record_trace(model, inputs, target, request)
    found = localize(model, inputs, reference, candidate, pairing, LocalizationOptions())
    sides = Sides(model=model, inputs=inputs, reference=reference, candidate=candidate, pairing=pairing)
    return Recorded(sides=sides, localization=found)


WIRING = st.lists(
    st.tuples(st.sampled_from(["Tanh", "Abs", "Neg", "Join"]), st.integers(0, 9), st.integers(0, 9)),
    min_size=4,
    max_size=9,
)


@given(wiring=WIRING, outputs=st.sets(st.integers(0, 4), max_size=2), faulty=st.integers(1, 4), room=st.integers(1, 5))
@settings(max_examples=15, deadline=None)
def test_what_is_introduced_does_not_depend_on_the_parts(
    wiring: list[tuple[str, int, int]], outputs: set[int], faulty: int, room: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        onnx.save(graph_of(wiring, outputs, faulty, 0.1), folder / "right.onnx")
        onnx.save(graph_of(wiring, outputs, faulty, 0.1 + FAULT), folder / "wrong.onnx")
        model = load_model(folder / "right.onnx")
        inputs = one_sample({"x": np.linspace(-1, 1, SIZE, dtype=np.float32)})
        target = parse_target(f"ort?optimization=disabled&model={folder / 'wrong.onnx'}")
        reference = steady(model, inputs, folder)
        unsteady = restless(backend_named("ort"))
        with patch("parityscope.backends.opening.backend_named", lambda _: unsteady):
            whole = recorded(model, inputs, reference, target, folder / "whole", 1 << 20)
            several = recorded(model, inputs, reference, target, folder / "parts", 2 * room * NBYTES)
        sizes = {tensor: float(np.linalg.norm(reference.get(0, tensor))) for tensor in whole.introduced}
    assert not whole.sides.candidate.parts
    assert not whole.localization.spreads
    assert len(set(several.sides.candidate.parts.values())) > 1
    assert not several.localization.skipped
    assert several.introduced.keys() == whole.introduced.keys()
    # What the sessions add to the input is introduced by the node that reads it.
    del sizes["t0"]
    for tensor, size in sizes.items():
        slack = ROUNDING * SIZE**0.5 / size
        # |FAULT * (1, ..., 1)| / |r|, whatever the tensors were in that session.
        wanted = FAULT * SIZE**0.5 / size if tensor == f"t{faulty}" else 0.0
        assert whole.introduced[tensor] == pytest.approx(wanted, abs=slack), tensor
        assert several.introduced[tensor] == pytest.approx(wanted, abs=slack), tensor
    # The first part's tensors that a later part read were not the same there.
    assert several.localization.spreads


@given(
    lists=st.lists(st.lists(st.integers(0, 30), max_size=3), min_size=1, max_size=30),
    sizes=st.lists(st.integers(0, 9), min_size=30, max_size=30),
    missing=st.sets(st.integers(0, 29)),
    limit=st.integers(1, 30),
)
def test_parts_hold_every_tensor_once_with_what_it_is_computed_from(
    lists: list[list[int]], sizes: list[int], missing: set[int], limit: int
) -> None:
    names = [f"t{index}" for index in range(len(lists))]
    # Only what comes before can be read.
    reads = {name: [f"t{read}" for read in lists[place] if read < place] for place, name in enumerate(names)}
    plan = PartsPlan(reads=reads, sizes=dict(zip(names, sizes, strict=False)), limit=limit)
    absent = {f"t{index}" for index in missing}

    @functools.cache
    def given_above(name: str) -> set[str]:
        return {one for read in reads[name] for one in (given_above(read) if read in absent else {read})}

    left, told, members = names, set(), []
    while left:
        part = next_part(left, told, plan)
        held = {*part.members, *part.inputs}
        for name in part.members:
            assert {read for read in given_above(name) if read not in absent} <= held
        assert not set(part.members) & set(part.inputs)
        first = part.members[0]
        assert sum(plan.sizes[name] for name in held) <= limit or set(part.members) == {first}
        members += part.members
        told |= absent & set(part.members)
        left = left[len(part.members) :]
    assert members == names


def test_outputs_stand_behind_what_they_are_computed_from() -> None:
    reads = {"y": ["a", "b"], "z": ["c"], "w": []}
    assert order_with_outputs(["a", "b", "c", "d"], ["y", "z", "w"], reads) == ["a", "b", "y", "c", "z", "d", "w"]


PROGRAM = """#!{python}
import sys
from pathlib import Path
import numpy as np
calls = Path({calls!r})
number = len(calls.read_text()) if calls.exists() else 0
calls.write_text("." * (number + 1))
x = np.load(sys.argv[1] + "/000000.npz")["x"] + np.float32(0.01 * number)
given = {{}}
for index in range({count}):
    x = given[f"t{{index}}"] = np.maximum(x, np.float32(0)) + np.float32({fault} if index == {faulty} else 0.0)
np.savez(sys.argv[2] + "/000000.npz", **given)
"""


def test_a_program_that_answers_otherwise_each_time(tmp_path: Path) -> None:
    """Every run of the program shifts its input a little more; only t3 of the chain of Relus is wrong, by FAULT."""
    count, faulty = 7, 3
    nodes = "\n".join(f"t{index} = Relu({f't{index - 1}' if index else 'x'})" for index in range(count))
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[{SIZE}] x) => (float[{SIZE}] t{count - 1}) {{ {nodes} }}'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    program = tmp_path / "infer.py"
    calls = str(tmp_path / "calls")
    program.write_text(
        PROGRAM.format(python=sys.executable, calls=calls, count=count, fault=FAULT, faulty=faulty), encoding="utf-8"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    model = load_model(tmp_path / "m.onnx")
    inputs = one_sample({"x": np.linspace(0.5, 1, SIZE, dtype=np.float32)})
    case = Case(name="m", model=model, inputs=inputs, policy=Policy())
    # Half of it for a part: an input and two tensors.
    asked = examination_of(case, f"command?run={program}", folder=tmp_path / "study", memory=6 * NBYTES, seconds=1.0)
    told = examine_request(asked)
    suspects = {suspect["site"]["tensor"]: suspect for suspect in told["suspects"]}
    size = float(np.linalg.norm(inputs.sample(0).arrays["x"].astype(np.float64)))
    assert suspects[f"t{faulty}"]["introduced"] == pytest.approx(FAULT * SIZE**0.5 / size, rel=1e-6)
    # What the program adds to its input is introduced by the node that reads it.
    assert {name for name, suspect in suspects.items() if suspect["introduced"] > ROUNDING} <= {f"t{faulty}", "t0"}
    assert told["localization"]["windows"] > 2
    (looking,) = (finding for finding in told["findings"] if finding["code"] == "RUN002")
    between = looking["details"]["between_parts"]
    # Two runs are at least one shift of 0.01 apart, which every Relu behind the input hands on; the last has shifted most.
    largest = 0.01 * len((tmp_path / "calls").read_text(encoding="utf-8"))
    assert min(between.values()) >= 0.01 * SIZE**0.5 / (size + FAULT * SIZE**0.5 + largest * SIZE**0.5)


@pytest.mark.model
def test_a_reduced_precision_engine_in_parts(tmp_path: Path) -> None:
    """OpenVINO in BF16 fuses otherwise where other tensors are marked, so that its parts differ; what is blamed does not."""
    pytest.importorskip("openvino")
    needs_bfloat16()
    model = load_model(require("ocr-rec"))
    inputs = one_sample(ocr_rec_input(rendered_line("Parity in 2024")))
    target = parse_target("openvino:bf16?observe=all")
    reference = steady(model, inputs, tmp_path)
    whole = recorded(model, inputs, reference, target, tmp_path / "whole", 512 << 20)
    several = recorded(model, inputs, reference, target, tmp_path / "parts", 48 << 20)
    assert len(set(several.sides.candidate.parts.values())) > 3
    assert not several.localization.skipped
    assert several.introduced.keys() == whole.introduced.keys()
    # A region rounds otherwise when other tensors enter it: what it introduces moves by less than one rounding of BF16,
    # 2^-9, and would move by as much as its inputs differ between the parts if they were of another part.
    assert several.localization.spreads[0].value > 2.0**-8
    for tensor, introduced in whole.introduced.items():
        assert several.introduced[tensor] == pytest.approx(introduced, abs=2.0**-9), tensor
