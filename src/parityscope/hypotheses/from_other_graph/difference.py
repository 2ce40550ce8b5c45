"""One thing in which two graphs differ, as a record."""

from __future__ import annotations

from parityscope.light_dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDifference:
    """What differs at one place of the candidate's graph.

    `site` is the reference's value at the end of its stretch, `node` the name of the node, `kind` is one of constant,
    attribute, inputs, opset, structure, type. `at` is the reference's value that is another from here on, where that is not the
    end of the stretch ("": it is). `group` is shared by differences that are one and the same change at many places.
    `step` and `maker` are the matched steps' places in the candidate's and the reference's program (-1: none), `place` the input,
    `attribute` the attribute. `declared`: the candidate's file says so itself, by its types or its quantization.
    """

    site: str
    node: str
    kind: str
    words: str
    group: str
    step: int = -1
    maker: int = -1
    place: int = -1
    attribute: str = ""
    declared: bool = False
    at: str = ""
