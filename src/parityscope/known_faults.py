"""Faults of runtimes by version, as data with a source each: which of them a version and a machine may have.

The table is `known_faults.json`; whoever finds another adds it there. Pure: versions and facts go in, records come out. What of a
network such a fault needs is asked by `checks/known_fault.py`, and `parityscope doctor` tells those of what is installed.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.environment import numbers_of
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

# The runtimes that the table tells of: the key of their version among a side's facts -> how they are called.
RUNTIMES = {"tensorrt": "TensorRT", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of a runtime in versions `first` to `last` ("": no version without it is known), both as far as they are written.

    Of a network it needs `chain` (operators, each reading the one before) and `operators` (each of them somewhere, "A|B" either;
    `count` nodes of the first), with these `attributes`, in these `opsets`; `formats` are those that it appears in (none: all).
    `facts` holds words of which the machine must tell one, by fact, `lacks` words that it must not tell. `asked_by` is the
    check that proves or refutes it where one can.
    """

    name: str
    runtime: str
    first: str
    last: str
    symptom: str
    workaround: str
    source: str
    standing: str
    sources: tuple[str, ...] = ()
    chain: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    count: int = 1
    attributes: tuple[tuple[str, int], ...] = ()
    opsets: tuple[int, int] = (0, 999)
    formats: tuple[str, ...] = ()
    facts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    lacks: tuple[tuple[str, tuple[str, ...]], ...] = ()
    asked_by: str = ""

    @property
    def versions(self) -> str:
        """Its versions in words."""
        title = RUNTIMES[self.runtime]
        if self.first == self.last:
            return f"{title} {self.first}"
        return f"{title} {self.first} to {self.last}" if self.last else f"{title} from {self.first} on"


@functools.cache
def every_fault() -> tuple[Fault, ...]:
    """The whole table."""
    document = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return tuple(_read_fault(one) for one in document["faults"])


def faults_of(runtime: str, version: str, facts: Mapping[str, str]) -> tuple[Fault, ...]:
    """The faults that `version` of a runtime may have on a machine of these facts; a fact that is not told rules one out."""
    ours = numbers_of(version)
    return tuple(
        one
        for one in every_fault()
        if one.runtime == runtime
        and _is_version_within(ours, one)
        and all(any(word in facts.get(key, "") for word in words) for key, words in one.facts)
        and not any(word in facts.get(key, "") for key, words in one.lacks for word in words)
    )


def _is_version_within(ours: tuple[int, ...], fault: Fault) -> bool:
    first, last = numbers_of(fault.first), numbers_of(fault.last)
    return bool(ours) and ours[: len(first)] >= first and (not last or ours[: len(last)] <= last)


def _read_fault(one: Mapping[str, Any]) -> Fault:
    held = dict(one)
    low, high = held.pop("opset", (0, 999))
    held["attributes"] = tuple(held.get("attributes", {}).items())
    for name in ("facts", "lacks"):
        held[name] = tuple((key, tuple(words)) for key, words in held.get(name, {}).items())
    for name in ("sources", "chain", "operators", "formats"):
        held[name] = tuple(held.get(name, ()))
    return Fault(opsets=(int(low), int(high)), **held)
