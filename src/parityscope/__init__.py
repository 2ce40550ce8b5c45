"""Parityscope tells why a deployed network disagrees with the original, where it starts, and how to repair it.

Data flows one way through these modules, first to last:

* `records`      : the core types;
* `trace`        : tensors of one run, lazy, on disk;
* `case`         : model + inputs + policy, the only place that reads ONNX graphs;
* `arithmetic`   : number formats, rounding, simulation graphs;
* `comparison`   : (reference, candidate) -> measurements;
* `backends`     : (case, target) -> trace, the only code that runs models;
* `pairing`      : which tensor of another graph is which;
* `lint`         : what a file says without a run;
* `noise`, `prediction`: the FP32 noise floor, expected error per format, grades;
* `forecast`     : what a number format will do, without the candidate;
* `localization` : introduced and inherited error, and what of it reaches the outputs;
* `explanation`  : which arithmetic, or which other function, a layer's error is;
* `checks`       : one hypothesis a file, as experiments;
* `diagnosis`    : chooses, runs and ranks them;
* `repairs`      : finding -> patch on a copy; the search for the smallest set of nodes in FP32;
* `verification` : before and after on the undisturbed deployment;
* `study`        : the chain as one record on disk;
* `report`, `cli`: how it is shown.

The verbs of the command line are functions here: `diagnose`, `compare`, `localize`, `predict`, `verify`;
`load_study` reads one again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from parityscope.expectation.forecasts import Forecast
    from parityscope.records import Policy
    from parityscope.study import Settings, Study
    from parityscope.verification import Verification

__all__ = ["ParityError", "compare", "diagnose", "load_study", "localize", "predict", "verify"]
__version__ = "0.1.0"


def diagnose(
    model: str | Path,
    *,
    candidate: str,
    inputs: str | Path | None = None,
    reference: str = "ort",
    declared: str = "",
    policy: str | Path | Policy | None = None,
    mapping: Mapping[str, str] | None = None,
    memory: int = 512 << 20,
) -> Study:
    """The whole chain: compare, localize, test causes, try repairs. Targets and `inputs` as on the command line.

    `memory` is in bytes; `declared` is f32, tf32, f16 or bf16 (by default what the policy or the candidate's target
    says); `policy` is a policy file or a `records.Policy`.

    Raises:
        ParityError: bad input, a missing runtime, or a side that cannot run.
    """
    from parityscope.study import Settings

    settings = Settings(memory=memory, mapping=mapping)
    return _study(model, reference, candidate, inputs, declared, policy, settings)


def compare(
    model: str | Path,
    *,
    candidate: str,
    inputs: str | Path | None = None,
    reference: str = "ort",
    declared: str = "",
    policy: str | Path | Policy | None = None,
    mapping: Mapping[str, str] | None = None,
    memory: int = 512 << 20,
    all_tensors: bool = False,
) -> Study:
    """The outputs of two targets side by side (every tensor with `all_tensors`); arguments as of `diagnose`."""
    from parityscope.study import Settings

    settings = Settings(memory=memory, mapping=mapping, layers=all_tensors, localize=False, causes=False)
    return _study(model, reference, candidate, inputs, declared, policy, settings)


def localize(
    model: str | Path,
    *,
    candidate: str,
    inputs: str | Path | None = None,
    reference: str = "ort",
    declared: str = "",
    policy: str | Path | Policy | None = None,
    mapping: Mapping[str, str] | None = None,
    memory: int = 512 << 20,
) -> Study:
    """Introduced and inherited error of every layer or region; arguments as of `diagnose`."""
    from parityscope.study import Settings

    settings = Settings(memory=memory, mapping=mapping, causes=False)
    return _study(model, reference, candidate, inputs, declared, policy, settings)


def predict(
    model: str | Path,
    *,
    inputs: str | Path | None = None,
    formats: Sequence[str] = ("f16", "bf16", "tf32"),
    profile: str = "none",
    memory: int = 512 << 20,
) -> Forecast:
    """What each of `formats` will do to the model on these samples, without a candidate.

    `profile` is the engine whose fusion is simulated: none, openvino, onnxruntime-cuda or tensorrt.

    Raises:
        ParityError: bad input, or a format or profile that there is not.
    """
    from parityscope.expectation import forecasting
    from parityscope.study import Question, posed

    with posed(Question(model=model, candidate="ort", inputs=inputs), memory=memory) as asked:
        settings = forecasting.Settings(profile=profile, memory=memory)
        return forecasting.forecast(asked.case.model, asked.case.inputs, list(formats), settings)


def verify(
    model: str | Path,
    *,
    before: str,
    after: str,
    inputs: str | Path | None = None,
    reference: str = "ort",
    metrics: Sequence[str] = (),
    labels: str | Path | None = None,
    policy: str | Path | Policy | None = None,
) -> Verification:
    """Runs both targets on the undisturbed deployment and judges the paired differences.

    `metrics` are names of built-in task metrics; `labels` an `.npz` with a row a sample, or a folder of them.

    Raises:
        ParityError: bad input, a missing runtime, or a side that cannot run.
    """
    from pathlib import Path

    from parityscope import verification
    from parityscope.backends.recording import silent
    from parityscope.backends.targets import parse_target
    from parityscope.private_folders import scratch_folder
    from parityscope.study import Question, posed

    question = Question(model=model, candidate=after, reference=reference, inputs=inputs, policy=policy)
    with posed(question) as asked, scratch_folder("verify") as scratch:
        settings = verification.Settings(
            metrics=tuple(verification.chosen_metric(name) for name in metrics),
            labels=None if labels is None else verification.load_labels(Path(labels), asked.case.inputs, limited=False),
        )
        targets = verification.Targets(reference=asked.reference, before=parse_target(before), after=asked.candidate)
        return verification.verify(asked.case, targets, settings, folder=Path(scratch), progress=silent)


def load_study(folder: str | Path) -> Study:
    """Reads a study again.

    Raises:
        ParityError: there is none, or another version wrote it.
    """
    from pathlib import Path

    from parityscope import study

    return study.load_study(Path(folder))


def _study(
    model: str | Path,
    reference: str,
    candidate: str,
    inputs: str | Path | None,
    declared: str,
    policy: str | Path | Policy | None,
    settings: Settings,
) -> Study:
    """What `diagnose`, `compare` and `localize` do: they differ in how far `settings` go."""
    from pathlib import Path

    from parityscope.private_folders import scratch_folder
    from parityscope.study import Question, Study, examine, posed

    question = Question(
        model=model, candidate=candidate, reference=reference, inputs=inputs, declared=declared, policy=policy
    )
    with scratch_folder("run") as scratch, posed(question, memory=settings.memory) as asked:
        document = examine(asked.case, asked.reference, asked.candidate, folder=Path(scratch), settings=settings)
    return Study(document=document)
