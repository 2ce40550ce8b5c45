"""Did every input arrive as it is? Where that is known, no claim about what the deployment's model was given is left.

It is known where what is computed directly from the inputs was captured and is right; and where the reference is the network
before its conversion, if the ONNX file on these very inputs gives what the deployment gave: then the two sides part in the file.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.checks import Shown
from parityscope.checks._conversion import worst_misfit
from parityscope.checks._reproducing import ORDER, show_refuted
from parityscope.errors import ParityError
from parityscope.expectation.grades import FLOAT32_ROUNDING, margin_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from parityscope.bench import Bench
    from parityscope.checks import Claim
    from parityscope.checks._reproducing import Misfit
    from parityscope.examination import Examination


def unless_arrived(known: Examination, bench: Bench) -> Callable[[Claim], Claim]:
    """What makes a claim about the inputs one that is refuted where every input arrived. The file is asked once for all."""
    if has_arrived_right(known):
        return clean_inputs
    left = functools.cache(lambda: comes_from_file(known, bench))

    def changed(claim: Claim) -> Claim:
        def asked() -> Shown:
            found = left()
            if found is None:
                return claim.test()
            return show_refuted(found, "the file on these very inputs gives what the deployment gave")

        return replace(claim, test=asked)

    return changed


def comes_from_file(known: Examination, bench: Bench) -> Misfit | None:
    """The misfit of the converted file to the deployment, on the same inputs; None unless it reproduces the deployment."""
    if bench.converted is None:
        return None
    try:
        left = worst_misfit(known, bench, bench.converted, bench.candidate)
    except ParityError:
        return None
    return left if left.fits else None


def has_arrived_right(known: Examination) -> bool:
    """Whether what is computed directly from the inputs was captured and is right: then every input arrived as it is."""
    arrays = {value.name for value in known.model.inputs if value.shape}
    readers: dict[str, list[str]] = {name: [] for name in arrays}
    for node in known.graph.graph:
        for value in node.inputs:
            if value is not None and value.name in readers:
                readers[value.name].extend(str(result.name) for result in node.outputs)
    return bool(arrays) and all(
        any(name in known.tensors for name in names) and all(_is_right(known, name) for name in names)
        for names in readers.values()
    )


def _is_right(known: Examination, tensor: str) -> bool:
    """Whether a tensor is as right as the declared arithmetic allows, or was not captured."""
    pair = known.tensors.get(tensor)
    if pair is None:
        return True
    if "rel_l2" not in pair.measurements:
        return pair.value("mismatch_share") == 0.0
    last = ORDER.index(known.declared) if known.declared in ORDER else 0
    allowed = [pair.expected[name] * margin_of(name) for name in ORDER[: last + 1] if name in pair.expected]
    return pair.value("rel_l2") <= max([*allowed, margin_of("f32") * FLOAT32_ROUNDING])


def clean_inputs(claim: Claim) -> Claim:
    """A claim about inputs that is refuted because they arrived."""
    because = "what is computed directly from the inputs is right in the candidate"
    return replace(claim, test=lambda: Shown(because=because, outcome="refutes", after=0.0))
