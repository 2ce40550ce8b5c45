"""Case -> outcome: plants the fault (or deploys honestly), runs the whole chain as `parityscope diagnose` does, judges.

The chain gets a `Request` in the words of the command line and nothing of the `Plant` beside it. An honest deployment is drawn
like a faulty one: an arithmetic, live or recorded, with all tensors or the outputs only.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.errors import ParityError
from parityscope.private_folders import scratch_folder
from proving.faults.cases import generator
from proving.faults.judging import judged
from proving.faults.planting import BASES, answers, base_of, live, recorded, write_samples
from proving.faults.records import Bed, NoEffectError, Outcome, Plant
from proving.faults.subjects import SUBJECTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from proving.faults.records import Case, Fault

_ATTEMPTS = 12  # draws of a plant that has no effect, before the case is given up


def run_case(case: Case, fault: Fault, clock: Callable[[], float] = time.perf_counter) -> Outcome:
    """Plants, diagnoses and judges one case; what keeps it from being examined is told in `error`."""
    blank = Outcome(case=case, family=fault.family, expected=(fault.expected, *fault.accepted))
    with scratch_folder("fault") as scratch:
        try:
            bed, plant = plant_case(case, fault, Path(scratch))
        except NoEffectError as error:
            return replace(blank, error=f"no plant has an effect: {error}")
        except ParityError as error:
            return replace(blank, error=f"it cannot be planted: {error.problem}")
        except Exception as error:  # noqa: BLE001 - the edge to plug-ins: their faults must not lose the suite
            return replace(blank, error=f"the fault itself failed: {type(error).__name__}: {error}")
        if case.clean:
            plant = _honest(bed, plant)
        started = clock()
        try:
            document = _diagnosed(bed, plant)
        except ParityError as error:
            return replace(blank, words=plant.words, error=f"the diagnosis refuses: {error.problem}")
        except Exception as error:  # noqa: BLE001 - the suite's edge: a crash is an outcome, and must not lose the others
            crashed = replace(blank, words=f"{plant.words}: {type(error).__name__}: {error}", verdict="crashed")
            return replace(crashed, blamed=("crash",)) if case.clean else replace(crashed, first=False, three=False)
        return judged(replace(blank, words=plant.words), fault, plant, document, clock() - started)


def plant_case(case: Case, fault: Fault, scratch: Path) -> tuple[Bed, Plant]:
    """The case planted in a folder that is empty: its bed and the deployment with the fault.

    Raises:
        NoEffectError: no draw of it has an effect.
    """
    problem = ""
    for attempt in range(_ATTEMPTS):
        folder = scratch / str(attempt)
        folder.mkdir()
        subject = SUBJECTS[case.subject]
        path, samples = subject.make(folder, generator(case, attempt, "subject"))
        draw = generator(case, attempt, "fault")
        bed = Bed(subject=subject, path=path, samples=samples, folder=folder, draw=draw)
        try:
            plant = fault.plant(bed)
        except NoEffectError as error:
            problem = str(error)
        else:
            return replace(bed, draw=generator(case, attempt, "twin")), plant
    raise NoEffectError(problem)


def _honest(bed: Bed, plant: Plant) -> Plant:
    """The same model and inputs, deployed as well as the arithmetic allows."""
    # Inputs that are faults themselves are not an honest test; those that images were prepared for are.
    samples = plant.samples if plant.images is not None and plant.samples is not None else bed.samples
    sound = replace(bed, samples=samples)
    base = base_of(sound, *BASES)
    way = int(bed.draw.integers(3))
    words = f"honest in {base}"
    if way == 0 or plant.states:
        candidate = "openvino:f32" if base == "f32" and bed.subject.openvino and not plant.states else live(base)
    else:
        outputs = answers(sound.path, samples, base, inside=way == 1)
        candidate = recorded(sound, outputs, base, "honest")
        words += ", all tensors recorded" if way == 1 else ", outputs recorded"
    return Plant(
        words=words,
        candidate=candidate,
        declared=base,
        samples=samples,
        images=plant.images,
        own=None if plant.own is None else samples,
        real=None if plant.real is None else samples,
        states=plant.states,
        steps=plant.steps,
    )


def _diagnosed(bed: Bed, plant: Plant) -> dict[str, Any]:
    """The study's document: `parityscope diagnose MODEL --candidate ... --inputs ...` with the plant's options."""
    from dataclasses import replace

    from parityscope.records import Policy
    from parityscope.study import Request, examine_request, open_request

    data = write_samples(bed.samples if plant.samples is None else plant.samples, bed.folder / "inputs")
    own = None if plant.own is None else write_samples(plant.own, bed.folder / "own")
    real = "" if plant.real is None else str(write_samples(plant.real, bed.folder / "real"))
    request = Request(
        model=bed.path,
        candidate=plant.candidate,
        reference=plant.reference,
        inputs=data if plant.given else None,
        declared="" if plant.budgets else plant.declared,
        policy=Policy(declared=plant.declared or "f32", budgets=plant.budgets) if plant.budgets else None,
        images=plant.images,
        candidate_inputs=own,
        real=real,
        states=plant.states,
        steps=plant.steps,
    )
    with open_request(request) as asked:
        return examine_request(replace(asked, folder=bed.folder / "study"))
