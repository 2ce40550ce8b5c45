"""The triangle: reference, candidate, and an honest peer of the candidate's precision, two by two.

r is the reference's output, c the candidate's and p the peer's: the simulation of the format that the candidate computes in,
or another runtime of the same precision. |p - r| is what the format costs anyway. Honest roundings of two programs are
independent, so that they add in squares, and what is this engine's own is

    own = sqrt(max(0, |c - r|^2 - |p - r|^2)),

in relative L2 like the sides. |c - p| tells the cases apart: sqrt(|c - r|^2 + |p - r|^2) where the errors are independent
(only magnitudes of a network's rounding error can be predicted), near 0 where both lose the same thing, such as a
value beyond the format's range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic import FORMATS
from parityscope.backends import Capture, backend_named, is_simulation
from parityscope.backends.opening import open_target
from parityscope.backends.targets import format_target
from parityscope.comparison import measure_pair, merge_statistics
from parityscope.comparison.distance import error_distance
from parityscope.comparison.rows import make_aligner
from parityscope.errors import ParityError
from parityscope.examination import Triangle
from parityscope.records import Skip, Target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from parityscope.comparison import Statistics
    from parityscope.examination import Examination

__all__ = ["measure_triangle", "peer_of"]


def peer_of(candidate: Target, precision: str) -> Target | None:
    """The honest peer of a candidate that computes in `precision`: its simulation; None in full precision."""
    if precision not in FORMATS or precision in {"f32", "f64"} or is_simulation(candidate):
        return None
    profile = backend_named(candidate.backend).profile
    options = (("profile", profile),) if profile else ()
    return Target(backend="sim", precision=precision, options=options)


def measure_triangle(
    examination: Examination, peer: Target, samples: Sequence[int]
) -> tuple[dict[str, Triangle], list[Skip]]:
    """The triangle of every float output that all three have; a Skip where the peer cannot run or lacks an output."""
    case, pairing, progress = examination.case, examination.names, examination.progress
    totals: dict[tuple[str, str], Statistics] = {}
    missing: dict[str, str] = {}
    outputs = [value.name for value in case.model.outputs]
    try:
        with (
            open_target(case.model, examination.reference, Capture()) as first,
            open_target(case.model, examination.candidate, Capture()) as second,
            open_target(case.model, peer, Capture()) as third,
        ):
            for position, index in enumerate(samples):
                progress("comparing with a peer", position, len(samples))
                sample = case.inputs.sample(index)
                expected = first.run(sample)
                runs = (
                    expected,
                    make_aligner(case.policy.matched, pairing)(expected, second.run(sample)),
                    make_aligner(case.policy.matched)(expected, third.run(sample)),
                )
                for name in outputs:
                    problem = _add_sample(totals, name, (name, pairing.get(name, name), name), runs)
                    if problem:
                        missing.setdefault(name, problem)
            progress("comparing with a peer", len(samples), len(samples))
    except ParityError as error:
        return {}, [Skip(what=f"peer {format_target(peer)}", reason=error.problem, fix=error.fix)]
    found = {
        name: Triangle(
            peer=format_target(peer),
            candidate_reference=error_distance(totals[name, "candidate_reference"]),
            peer_reference=error_distance(totals[name, "peer_reference"]),
            candidate_peer=error_distance(totals[name, "candidate_peer"]),
        )
        for name in outputs
        if name not in missing and (name, "candidate_reference") in totals
    }
    return found, [Skip(what=f"peer's output {name}", reason=reason) for name, reason in missing.items()]


def _add_sample(
    totals: dict[tuple[str, str], Statistics],
    name: str,
    names: tuple[str, str, str],
    runs: tuple[Mapping[str, np.ndarray], ...],
) -> str:
    """Adds one output of one sample to its three distances; gives why it could not."""
    if not all(called in run for called, run in zip(names, runs, strict=True)):
        return "not all three gave it back"
    r, c, p = (run[called] for called, run in zip(names, runs, strict=True))
    if not r.shape == c.shape == p.shape:
        return f"its shapes differ: {list(r.shape)}, {list(c.shape)}, {list(p.shape)}"
    try:
        parts = {
            "candidate_reference": measure_pair(r, c, channel_axis=None),
            "peer_reference": measure_pair(r, p, channel_axis=None),
            "candidate_peer": measure_pair(p, c, channel_axis=None),
        }
    except ValueError as error:
        return str(error)
    for side, part in parts.items():
        totals[name, side] = merge_statistics(totals[name, side], part) if (name, side) in totals else part
    return ""
