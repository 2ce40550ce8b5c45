"""The options that several verbs take by name, as on the command line; what is left out is as there."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from parityscope.records import Policy


class DataOptions(TypedDict, total=False):
    """How inputs are read.

    `preprocess` is "file.py:function", a recipe (.toml) or a processor's folder; `stacked` says that files hold samples along
    axis 0; `shapes` are those of raw blobs and generated inputs, by input; `samples` is how many at most; `seed` is that of
    generated inputs; `memory` is for tensors, in bytes; `allow_skipped` the share of samples that may be damaged or hold NaN.
    """

    preprocess: str
    stacked: bool
    shapes: Mapping[str, tuple[int, ...]]
    samples: int
    seed: int
    memory: int
    allow_skipped: float


class RequestOptions(DataOptions, total=False):
    """How two sides are held against each other, beside how inputs are read (`DataOptions`).

    `declared` is f32, tf32, f16, bf16 or int8, by default what the policy or the candidate's target says; `policy` a policy
    file or a `records.Policy`; `mapping` names tensors of the reference -> those of the candidate; `match` the outputs whose
    rows have no order; `decide` what outputs decide ({"scores": 0.3}, or "classes", "top3", "ctc", "none"); `images` the folder
    of images that the samples were made from; `candidate_inputs` the recorded inputs of the deployment's own model;
    `until_sure` draws samples until it is so sure (0.95) whether they keep their budgets; `workers` share the samples
    ("8 processes").
    """

    declared: str
    policy: str | Path | Policy | None
    mapping: Mapping[str, str]
    match: tuple[str, ...]
    decide: Mapping[str, str | float]
    images: str | Path
    candidate_inputs: str | Path
    until_sure: float
    workers: str


class DiagnosisOptions(RequestOptions, total=False):
    """How causes are searched for, beside `RequestOptions`.

    `seconds` is the time for experiments; `peer` another target of the candidate's precision to hold it against; `real` real
    samples to hold the inputs against (a path); `states` are inputs -> the outputs that are fed back to them, for `steps`
    calls; `drive` is a function (file.py:function) that feeds back instead; `thorough` goes on where the answer is known.
    """

    seconds: float
    peer: str
    real: str
    states: Mapping[str, str]
    steps: int
    drive: str
    thorough: bool


class PlacesNow(TypedDict, total=False):
    """Where what a study names is now, if it moved, comes from a function or runs code: in the words of the command line."""

    model: str | Path
    inputs: str | Path
    candidate: str
    reference: str
    preprocess: str | Path
    real: str | Path
    images: str | Path
    candidate_inputs: str | Path
