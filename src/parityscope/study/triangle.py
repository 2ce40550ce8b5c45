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

    from parityscope.comparison import Statistics
    from parityscope.comparison.rows import Arrays
    from parityscope.examination import Examination


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
                reference, peers = first.run(sample), third.run(sample)
                candidate = second.run(sample)
                given = {
                    name: candidate[called] for name in outputs if (called := pairing.get(name, name)) in candidate
                }
                align = make_aligner(case.policy)
                runs = {
                    "candidate_reference": align(reference, given),
                    "peer_reference": align(reference, peers),
                    "candidate_peer": align(peers, given),
                }
                for name in outputs:
                    problem = _add_sample(totals, name, runs)
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


def _add_sample(totals: dict[tuple[str, str], Statistics], name: str, runs: Mapping[str, tuple[Arrays, Arrays]]) -> str:
    """Adds one output of one sample to its three distances; gives why it could not."""
    if not all(name in side for both in runs.values() for side in both):
        return "not all three gave it back"
    pairs = {label: (first[name], second[name]) for label, (first, second) in runs.items()}
    if any(one.shape != other.shape for one, other in pairs.values()):
        return f"its shapes differ: {', '.join(str(list(one.shape)) for one, _ in pairs.values())}"
    try:
        parts = {label: measure_pair(*pair, channel_axis=None) for label, pair in pairs.items()}
    except ValueError as error:
        return str(error)
    for side, part in parts.items():
        totals[name, side] = merge_statistics(totals[name, side], part) if (name, side) in totals else part
    return ""
