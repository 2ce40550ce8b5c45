"""Pairs of tensors as rows of the document: what its tables of outputs and of tensors hold."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.comparison.decisions import Decided
    from parityscope.records import Measurement, Pair, Suspect

__all__ = ["decisions_row", "distance_of", "output_row", "tensor_rows"]


def output_row(pair: Pair, reason: str) -> dict[str, Any]:
    """A pair of outputs with all its metrics; `reason` says why its verdict is what it is."""
    return {
        **_plain_numbers(pair),
        "samples": pair.samples,
        "rel_l2_finite": pair.value("rel_l2_finite"),
        "cosine": pair.value("cosine"),
        "snr_db": pair.value("snr_db"),
        "norm_ratio": pair.value("norm_ratio"),
        "verdict": pair.verdict,
        "worst_sample": pair.worst_sample,
        "measurements": {name: _plain_measurement(one) for name, one in pair.measurements.items()},
        "statistics": dict(pair.statistics),
        "reason": reason,
    }


_COUNTED = ("kind", "count", "changed", "new", "least", "reordered", "sequences", "sequences_changed")


def decisions_row(decided: Decided | None, pair: Pair | None = None) -> dict[str, Any] | None:
    """What an output decides, with what its declared arithmetic changes by itself and explains, where that is known."""
    if decided is None:
        return None
    found = {name: getattr(decided, name) for name in _COUNTED} | {"at": decided.at}
    if pair is not None and pair.usual_changes is not None:
        found |= {"usual_changed": pair.usual_changes[0], "usual_count": pair.usual_changes[1]}
    if pair is not None and pair.flip is not None:
        found["flip"] = {**asdict(pair.flip), "index": list(pair.flip.index), "explained": pair.flip.explained}
    return found


def tensor_rows(tensors: Mapping[str, Pair], suspects: tuple[Suspect, ...]) -> list[dict[str, Any]]:
    """Pairs by the reference's name, each with what the suspect of that name says of its error."""
    blamed = {suspect.site.tensor: suspect for suspect in suspects}
    rows = []
    for name, pair in tensors.items():
        suspect = blamed.get(name)
        channel = pair.measurements.get("worst_channel")
        rows.append(
            {
                **_plain_numbers(pair),
                "node": pair.site.node,
                "op_type": pair.site.op_type,
                "index": pair.site.index,
                "dtype": pair.dtype,
                "shape": list(pair.shape),
                "introduced": suspect.introduced if suspect else None,
                "inherited": suspect.inherited if suspect else None,
                "gain": suspect.gain if suspect else None,
                "floor": pair.expected.get("f32", suspect.floor if suspect else None),
                "worst_channel": None
                if channel is None
                else {
                    "index": channel.worst_index[0] if channel.worst_index else None,
                    "rel_l2": channel.value,
                    "ratio": pair.value("worst_channel_ratio"),
                },
                "ulp_mean": pair.value("ulp_mean"),
                "is_output": pair.is_output,
                "candidate_name": pair.candidate_name,
                "how": pair.how,
            }
        )
    return rows


def distance_of(pair: Pair) -> float:
    """Relative L2 distance; for integers, booleans and strings the share of unequal elements."""
    return pair.value("rel_l2") if "rel_l2" in pair.measurements else pair.value("mismatch_share")


def _plain_measurement(found: Measurement) -> dict[str, Any]:
    at = {} if found.worst_index is None else {"worst_index": found.worst_index}
    return {"value": found.value, "unit": found.unit, **at}


def _plain_numbers(pair: Pair) -> dict[str, Any]:
    found = pair.measurements
    worst = found["max_abs"].worst_index if "max_abs" in found else None
    return {
        "name": pair.site.tensor,
        "rel_l2": distance_of(pair),
        "max_abs": pair.value("max_abs"),
        "worst_index": worst,
        "nonfinite": {
            "reference": pair.nonfinite_reference,
            "candidate": pair.nonfinite_candidate,
            "agreeing": pair.nonfinite_agreeing,
        },
        "grade": pair.grade,
        "expected": dict(pair.expected),
    }
