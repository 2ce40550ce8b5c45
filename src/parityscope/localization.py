"""Comparison + replay -> Localization: the error that each region introduces, apart from what it inherits.

**Severed replay.** Every consumer of a tensor that the candidate let us see reads the *candidate's* value of it as a graph
input. One run of that graph in reference arithmetic gives f(c_in) for every such tensor, and then, exactly,

    c - r  =  (c - f(c_in))  +  (f(c_in) - r)
              introduced        inherited

Where the engine fused nodes and tensors between could not be seen, the same graph gives the error of the *region*
between observable tensors. It costs about one reference inference whatever the number of layers; graphs whose
tensors exceed the memory budget are replayed in windows, topologically, with the same result.

**Injection.** A suspect's share of the output error is measured by adding only the error that it introduces to the
reference and running the rest. With e the error of all outputs (each divided by its reference's norm) and e_s what
suspect s alone causes, share = <e_s, e> / <e, e>: it adds up to one over all suspects where errors add linearly, and
independent roundings, which add in squares, share by their squares. Where the candidate alone has NaN or Inf at an
output, the share is the part of those elements that the injection makes non-finite too. What all injected suspects
together leave over is `unexplained`.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends._onnxruntime import open_session
from parityscope.backends.recording import Progress, silent
from parityscope.case.graph import SEVERED_SUFFIX, inject, mark_outputs, sever, sites, subgraph
from parityscope.comparison import ReplayStatistics, channel_axis, measure_replay
from parityscope.records import Localization, Site, Skip, Suspect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from parityscope.backends._onnxruntime import Run
    from parityscope.case import Inputs, Model
    from parityscope.case.graph import Severed
    from parityscope.trace import Trace

__all__ = ["Options", "injection", "localize", "replay", "replayed_values"]

# Half a unit in the last place of float32, as a relative error: no two FP32 evaluations can be told apart below it.
_FLOAT32_ROUNDING = 2.0**-24


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to localize: memory for windows in bytes, threads for arithmetic, how many suspects to inject.

    `optimization` is the level at which the reference arithmetic runs the replay.
    """

    memory: int = 512 << 20
    threads: int = 2
    injected: int = 12
    optimization: str = "all"


def localize(
    model: Model,
    inputs: Inputs,
    reference: Trace,
    candidate: Trace,
    pairing: Mapping[str, str],
    options: Options | None = None,
    progress: Progress = silent,
) -> Localization:
    """Introduced and inherited error of every tensor in `pairing`, and the leading suspects' share of the output error.

    `reference` and `candidate` hold the same samples with their intermediate tensors; `pairing` maps the names of
    tensors of the reference's graph to the candidate's. Suspects come worst first: by share where it was measured,
    then by introduced error.
    """
    options = options or Options()
    places = sites(model.graph())
    observed, skipped = observed_tensors(reference, candidate, pairing, places)
    if not observed:
        return Localization(suspects=(), method="none", observed=0, windows=0, skipped=tuple(skipped))
    totals: dict[str, list[ReplayStatistics]] = {name: [] for name in observed}
    severed = sever(model.graph(), {name: _kind(reference, name) for name in observed})
    windows = plan_windows(reference, observed, options.memory // 2)
    for found in replay(model, inputs, reference, candidate, pairing, severed, windows, options, progress):
        totals[found.tensor].append(found.statistics)
    relative = {name: _relative_error(parts) for name, parts in totals.items()}
    suspects = [
        _suspect(places[name], parts, severed, relative, floor=_FLOAT32_ROUNDING) for name, parts in totals.items()
    ]
    suspects.sort(key=_by_introduced)
    return Localization(
        suspects=tuple(suspects),
        method="severed replay" if len(windows) == 1 else f"severed replay in {len(windows)} windows",
        observed=len(observed),
        windows=len(windows),
        samples=reference.samples,
        disturbance=candidate.disturbance,
        skipped=tuple(skipped),
    )


def observed_tensors(
    reference: Trace, candidate: Trace, pairing: Mapping[str, str], places: Mapping[str, Site]
) -> tuple[list[str], list[Skip]]:
    """The tensors that both sides have for every sample, alike in shape and kind, in topological order."""
    observed = []
    skipped = []
    for name in sorted(pairing, key=lambda name: places[name].index if name in places else -1):
        if name not in places:
            continue
        for sample in reference.samples:
            problem = _unlike(reference, candidate, sample, name, pairing[name])
            if problem:
                skipped.append(Skip(what=f"tensor {name}", reason=problem))
                break
        else:
            observed.append(name)
    return observed, skipped


def plan_windows(reference: Trace, observed: Sequence[str], limit: int) -> list[list[str]]:
    """Cuts `observed` into runs of consecutive tensors whose replayed values take at most `limit` bytes together."""
    windows: list[list[str]] = [[]]
    filled = 0
    for name in observed:
        nbytes = max(_nbytes(reference, sample, name) for sample in reference.samples)
        if windows[-1] and filled + nbytes > limit:
            windows.append([])
            filled = 0
        windows[-1].append(name)
        filled += nbytes
    return windows


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What the replay of one tensor on one sample showed."""

    tensor: str
    sample: int
    statistics: ReplayStatistics


def replay(
    model: Model,
    inputs: Inputs,
    reference: Trace,
    candidate: Trace,
    pairing: Mapping[str, str],
    severed: Severed,
    windows: Sequence[Sequence[str]],
    options: Options,
    progress: Progress = silent,
) -> Iterator[Replayed]:
    """Runs the severed graph window by window and measures each tensor against both sides."""
    for number, window in enumerate(windows):
        run = _open(model, severed, window, options)
        needed = tuple(dict.fromkeys(name for tensor in window for name in severed.reads[tensor]))
        for sample in reference.samples:
            progress("replaying", number, len(windows))
            arrays = replayed_values(run, inputs, reference, candidate, pairing, needed, sample)

            def measure(name: str, sample: int = sample, arrays: dict[str, np.ndarray] = arrays) -> ReplayStatistics:
                return measure_replay(
                    reference.get(sample, name),
                    candidate.get(sample, pairing[name]),
                    arrays.pop(name),
                    channel_axis=channel_axis(len(reference.info(sample, name)[1])),
                )

            # A thread a tensor: most tensors are too small to be worth splitting, and the kernels hold no lock.
            with ThreadPoolExecutor(options.threads) as pool:
                for name, statistics in zip(window, pool.map(measure, window), strict=True):
                    yield Replayed(tensor=name, sample=sample, statistics=statistics)
    progress("replaying", len(windows), len(windows))


def replayed_values(
    run: Run,
    inputs: Inputs,
    reference: Trace,
    candidate: Trace,
    pairing: Mapping[str, str],
    needed: Iterable[str],
    sample: int,
) -> dict[str, np.ndarray]:
    """Runs a severed (sub)graph on the candidate's tensors `needed` of one sample."""
    feeds: dict[str, np.ndarray] = dict(inputs.sample(sample).arrays)
    for name in needed:
        value = candidate.get(sample, pairing[name])
        wanted = reference.get(sample, name).dtype
        feeds[name + SEVERED_SUFFIX] = value if value.dtype == wanted else value.astype(wanted)
    return run(feeds)


def injection(
    model: Model,
    inputs: Inputs,
    reference: Trace,
    candidate: Trace,
    pairing: Mapping[str, str],
    localization: Localization,
    sample: int,
    options: Options | None = None,
    progress: Progress = silent,
) -> Localization:
    """`localization` with the leading suspects' shares of the output error on one sample, ranked by them.

    The output error is the one of the run whose tensors were captured.
    """
    options = options or Options()
    leading = [suspect.site.tensor for suspect in localization.suspects if _leads(suspect)][: options.injected]
    outputs = [value.name for value in model.outputs if _float_pair(reference, candidate, pairing, sample, value.name)]
    if not leading or not outputs:
        return localization
    errors = _introduced_errors(model, inputs, reference, candidate, pairing, leading, sample, options)
    graph = model.graph()
    names = inject(graph, {name: _kind(reference, name) for name in leading})
    mark_outputs(graph, outputs)
    run = open_session(graph, optimization=options.optimization, folder=model.path.parent)
    base = dict(inputs.sample(sample).arrays)
    zeros = {names[name]: _zero(errors[name]) for name in leading}
    actual = {name: _difference(reference, candidate, pairing, sample, name) for name in outputs}

    def effect(chosen: Sequence[str]) -> dict[str, np.ndarray]:
        feeds = {**base, **zeros, **{names[name]: errors[name] for name in chosen}}
        with np.errstate(invalid="ignore", over="ignore"):
            return {
                name: array.astype(np.float64) - reference.get(sample, name).astype(np.float64)
                for name, array in run(feeds).items()
            }

    shares: dict[str, tuple[float, float]] = {}
    for position, name in enumerate(leading):
        progress("injecting", position, len(leading))
        alone = effect([name])
        shares[name] = (_share(actual, alone, reference, sample), _norm(alone, reference, sample))
    progress("injecting", len(leading), len(leading))
    left = _left_over(actual, effect(leading), reference, sample)
    suspects = [
        replace(suspect, share=shares[suspect.site.tensor][0], injected=shares[suspect.site.tensor][1])
        if suspect.site.tensor in shares
        else suspect
        for suspect in localization.suspects
    ]
    suspects.sort(key=_by_share)
    return replace(localization, suspects=tuple(suspects), unexplained=left)


def _open(model: Model, severed: Severed, window: Sequence[str], options: Options) -> Run:
    return open_session(subgraph(severed.model, window), optimization=options.optimization, folder=model.path.parent)


def _introduced_errors(
    model: Model,
    inputs: Inputs,
    reference: Trace,
    candidate: Trace,
    pairing: Mapping[str, str],
    leading: Sequence[str],
    sample: int,
    options: Options,
) -> dict[str, np.ndarray]:
    """The introduced error c - f(c_in) of each leading tensor, in the dtype that the graph holds it in."""
    observed = [name for name in pairing if reference.has(sample, name) and candidate.has(sample, pairing[name])]
    places = sites(model.graph())
    severed = sever(model.graph(), {name: _kind(reference, name) for name in observed if name in places})
    run = _open(model, severed, leading, options)
    needed = tuple(dict.fromkeys(name for tensor in leading for name in severed.reads[tensor]))
    replayed = replayed_values(run, inputs, reference, candidate, pairing, needed, sample)
    errors = {}
    for name in leading:
        mine = candidate.get(sample, pairing[name])
        again = replayed[name]
        if again.dtype == np.bool_:
            errors[name] = mine.astype(np.bool_) ^ again
        elif again.dtype.kind in "iu":
            errors[name] = (mine.astype(again.dtype) - again).astype(again.dtype)
        else:
            with np.errstate(invalid="ignore", over="ignore"):
                difference = mine.astype(np.float64) - again.astype(np.float64)
                # Equal infinities differ by nothing.
                difference[(mine == again)] = 0.0
                errors[name] = difference.astype(again.dtype)
    return errors


def _suspect(
    site: Site,
    parts: Sequence[ReplayStatistics],
    severed: Severed,
    relative: Mapping[str, float],
    *,
    floor: float,
) -> Suspect:
    total = parts[0]
    for part in parts[1:]:
        total = total.merge(part)
    entering = math.sqrt(sum(relative[name] ** 2 for name in severed.reads[site.tensor]))
    return Suspect(
        site=site,
        introduced=total.introduced,
        inherited=total.inherited,
        gain=total.inherited / entering if entering > 0 and math.isfinite(entering) else math.nan,
        angle=total.angle,
        floor=floor,
        region=severed.nodes[site.tensor],
        introduced_nonfinite=total.introduced_nonfinite,
        introduced_max=total.introduced_max,
        worst_index=total.worst_index,
        per_sample=tuple(part.introduced for part in parts),
    )


def _relative_error(parts: Sequence[ReplayStatistics]) -> float:
    total = parts[0]
    for part in parts[1:]:
        total = total.merge(part)
    return total.total


def _by_introduced(suspect: Suspect) -> tuple[bool, float, int]:
    size = suspect.introduced
    return (not math.isinf(size), -size if math.isfinite(size) else 0.0, suspect.site.index)


def _by_share(suspect: Suspect) -> tuple[bool, float, tuple[bool, float, int]]:
    known = suspect.share is not None
    return (not known, -(suspect.share or 0.0), _by_introduced(suspect))


def _leads(suspect: Suspect) -> bool:
    return suspect.introduced > suspect.floor or suspect.introduced_nonfinite > 0


def _kind(reference: Trace, name: str) -> tuple[str, int]:
    dtype, shape = reference.info(reference.samples[0], name)
    return dtype, len(shape)


def _nbytes(reference: Trace, sample: int, name: str) -> int:
    from parityscope.trace import numpy_dtype

    dtype, shape = reference.info(sample, name)
    return numpy_dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64))


def _unlike(reference: Trace, candidate: Trace, sample: int, name: str, other: str) -> str:
    """Why a tensor of one sample cannot be compared; empty when it can."""
    if not reference.has(sample, name):
        return "the reference did not give it back"
    if not candidate.has(sample, other):
        return "the candidate did not give it back"
    dtype, shape = reference.info(sample, name)
    its_dtype, its_shape = candidate.info(sample, other)
    if shape != its_shape:
        return f"its shape is {list(shape)} in the reference and {list(its_shape)} in the candidate"
    if dtype.startswith(("str", "object")):
        return "strings have no error"
    if _family(dtype) != _family(its_dtype):
        return f"it is {dtype} in the reference and {its_dtype} in the candidate"
    return ""


def _family(dtype: str) -> str:
    if dtype == "bool":
        return "bool"
    return "integer" if dtype.startswith(("int", "uint")) else "float"


def _float_pair(reference: Trace, candidate: Trace, pairing: Mapping[str, str], sample: int, name: str) -> bool:
    if name not in pairing or _unlike(reference, candidate, sample, name, pairing[name]):
        return False
    return _family(reference.info(sample, name)[0]) == "float"


def _zero(error: np.ndarray) -> np.ndarray:
    return np.zeros((), error.dtype)


def _difference(reference: Trace, candidate: Trace, pairing: Mapping[str, str], sample: int, name: str) -> np.ndarray:
    mine = candidate.get(sample, pairing[name]).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return mine - reference.get(sample, name).astype(np.float64)


def _scale(reference: Trace, sample: int, name: str) -> float:
    """The norm that an output's error is divided by; 1 for an output that is all zeros."""
    array = reference.get(sample, name).astype(np.float64)
    return float(np.linalg.norm(array[np.isfinite(array)])) or 1.0


def _share(actual: Mapping[str, np.ndarray], alone: Mapping[str, np.ndarray], reference: Trace, sample: int) -> float:
    """The part of the actual output error that one suspect alone reproduces (module docstring)."""
    broken = {name: ~np.isfinite(error) for name, error in actual.items()}
    count = sum(int(mask.sum()) for mask in broken.values())
    if count:
        return sum(int((mask & ~np.isfinite(alone[name])).sum()) for name, mask in broken.items()) / count
    dot = square = 0.0
    for name, error in actual.items():
        weight = _scale(reference, sample, name) ** 2
        square += float(np.vdot(error, error)) / weight
        finite = np.isfinite(alone[name])
        dot += float(np.vdot(error[finite], alone[name][finite])) / weight
    return dot / square if square else 0.0


def _norm(errors: Mapping[str, np.ndarray], reference: Trace, sample: int) -> float:
    """The relative L2 error of the worst output; inf where an element is not finite."""
    worst = 0.0
    for name, error in errors.items():
        if not np.isfinite(error).all():
            return math.inf
        worst = max(worst, float(np.linalg.norm(error)) / _scale(reference, sample, name))
    return worst


def _left_over(
    actual: Mapping[str, np.ndarray], together: Mapping[str, np.ndarray], reference: Trace, sample: int
) -> float:
    """The part of the output error that all injected suspects together do not reproduce, in [0, 1]."""
    broken = {name: ~np.isfinite(error) for name, error in actual.items()}
    count = sum(int(mask.sum()) for mask in broken.values())
    if count:
        missed = sum(int((mask & np.isfinite(together[name])).sum()) for name, mask in broken.items())
        return missed / count
    left = square = 0.0
    for name, error in actual.items():
        weight = _scale(reference, sample, name) ** 2
        square += float(np.vdot(error, error)) / weight
        with np.errstate(invalid="ignore"):
            rest = error - together[name]
        if not np.isfinite(rest).all():
            return 1.0
        left += float(np.vdot(rest, rest)) / weight
    return min(1.0, left / square) if square else 0.0
