"""The same edit at several places at once: at every step of an operator, or at each that reads the result of another operator.

What a converter, an opset or a fusion does wrong it does wherever it applies.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.hypotheses.from_outputs.guess import RULE_BITS, Guess
from parityscope.hypotheses.from_outputs.reference import READ
from parityscope.hypotheses.schemas import REAL, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from parityscope.hypotheses.edits import StretchEdit
    from parityscope.hypotheses.from_outputs.sites import EditSite

    Members = Sequence[tuple[Guess, StretchEdit]]

__all__ = ["EVERYWHERE", "find_alike", "join_alike", "list_number_rules", "list_rules"]

# What it takes to say that a step or an input is left out. Each rule is a run of most of the network: longer ones are not tried.
_LEFT_OUT_BITS = 4.0
_NUMBERS = re.compile(r"\[?(-?[\d.]+(?:e[+-]?\d+)?)\]? in place of \[?(-?[\d.]+(?:e[+-]?\d+)?)\]?$")
_NEAREST = 8  # other numbers that are tried at all places; chosen, as each is a run of most of the network
_SAME = 1e-4  # powers of ten: what FP32 leaves of a number that is written down in decimals
_ATTRIBUTE = re.compile(r"attribute (\w+) ")
EVERYWHERE = ", everywhere"  # behind the kind of an edit that is made at several places
_INSTEAD = " in place of "
_ABOUT_ONE = re.compile(
    r" ?\('[^']*'\)|'[^']*'| = \S+(?= left out)|(?<=in place of )-?[\d.e+-]+$|\b[\d.e+-]+ becomes \S+"
)


def list_rules(guesses: Sequence[Guess]) -> list[Guess]:
    """What can be left out at all places of a kind, and at all of these that stand behind one operator.

    Longer edits are joined where something is expected of them at each place.
    """
    sites = {one.site.step.index: one.site for one in guesses if one.site.inner is None}.values()
    places = Counter(_kind_of(one) for one in sites)
    behind_each = Counter((_kind_of(one), _operator_in_front(one)) for one in sites)
    rules = []
    for members in find_alike((one, one.made()) for one in guesses if one.made().bits <= _LEFT_OUT_BITS):
        kind = _kind_of(members[0][0].site)
        if len(members) == places[kind]:
            rules.append(join_alike(members))
        behind: dict[str, list[tuple[Guess, StretchEdit]]] = {}
        for guess, edit in members:
            behind.setdefault(_operator_in_front(guess.site), []).append((guess, edit))
        rules += [
            join_alike(some, front)
            for front, some in behind.items()
            if front and 1 < len(some) == behind_each[kind, front] < places[kind]
        ]
    return rules


def list_number_rules(sites: Sequence[EditSite]) -> list[Guess]:
    """Another number in the place of one that several steps have alike: the epsilon of every normalization, a scale, a slope."""
    whole = [site for site in sites if site.inner is None and site.whole_step]
    guesses = [
        Guess(site=site, kind=kind, edit=edit)
        for site in whole
        for kind, edit in [*_of_attributes(site), *_of_constants(site)]
    ]
    by_place: dict[tuple[str, ...], list[tuple[float, Members]]] = {}
    for members in find_alike((one, one.made()) for one in guesses):
        words = members[0][1].words
        numbers = _NUMBERS.search(words)
        away = 0.0 if numbers is None else _distance(*map(float, numbers.groups()))
        if numbers is not None and away > _SAME:
            place = (_ABOUT_ONE.sub("", words[: numbers.start()]), *(one.site.output for one, _ in members))
            by_place.setdefault(place, []).append((away, members))
    nearest = [sorted(every, key=lambda one: one[0])[:_NEAREST] for every in by_place.values()]
    return [join_alike(members) for every in nearest for _, members in every]


def _distance(number: float, other: float) -> float:
    """How many powers of ten are between two numbers; what changes its sign is farther than all others."""
    return abs(math.log10(number / other)) if number * other > 0 else math.inf


def _of_constants(site: EditSite) -> Iterator[tuple[str, StretchEdit]]:
    """Edits of a step whose constants are one real number each."""
    constants = site.reference.program.constants
    held = [constants[name] for name in site.changed_step.inputs if name in constants]
    if held and all(one.size == 1 and one.dtype.kind == "f" for one in held):
        yield from site.edits(("changed constants",))


def _of_attributes(site: EditSite) -> Iterator[tuple[str, StretchEdit]]:
    """Edits of a step's attributes that are real numbers."""
    schema = schema_of(site.node, site.stretch.context.opsets)
    real = () if schema is None else {name for name, spec in schema.attributes.items() if int(spec.type) == REAL}
    if real:
        yield from (
            one for one in site.edits(("attributes",)) if (named := _ATTRIBUTE.match(one[1].words)) and named[1] in real
        )


def find_alike(edits: Iterable[tuple[Guess, StretchEdit]]) -> Iterator[Members]:
    """The places at which the same can be said of the same operator, two or more, in the order of the network's steps."""
    alike: dict[tuple[str, str, str], dict[str, tuple[Guess, StretchEdit]]] = {}
    for guess, edit in edits:
        # Inputs are no operator: what is done to all of them at once is for the checks of bindings to say.
        if guess.site.inner is None and not guess.site.output.endswith(READ):
            key = guess.site.changed_step.op_type, guess.kind, _words_of_rule(edit)
            alike.setdefault(key, {})[guess.site.output] = guess, edit
    for by_site in alike.values():
        members = sorted(by_site.values(), key=lambda one: one[0].site.step.index)
        if 1 < len({one.site.step.index for one, _ in members}) == len(members):
            yield members


def join_alike(members: Members, behind: str = "") -> Guess:
    """One guess that makes all of these edits; nothing is expected of it yet."""
    first, edit = members[0]
    op_type = first.site.changed_step.op_type
    there = sum(step.op_type == op_type for step in first.site.reference.live)
    rule = _words_of_rule(edit)
    if rule.endswith(_INSTEAD.rstrip()):  # of numbers, which may be another one at each place
        rule += f" {' or '.join(dict.fromkeys(other.words.rpartition(_INSTEAD)[2] for _, other in members))}"
    if behind:
        words = f"at each of {len(members)} {op_type} behind {behind}: {rule}"
    elif len(members) == there:
        words = f"at each of {len(members)} {op_type}: {rule}"
    else:
        words = f"at {len(members)} of {there} {op_type}: {rule}"
    return Guess(
        site=first.site,
        kind=f"{first.kind}{EVERYWHERE}",
        edit=replace(edit, words=words, bits=edit.bits + RULE_BITS * (2 if behind else 1)),
        others=tuple((one.site, other) for one, other in members[1:]),
    )


def _words_of_rule(edit: StretchEdit) -> str:
    """What is said of one place, without what is said of that place alone."""
    return " ".join(_ABOUT_ONE.sub("", edit.words).replace("( taken)", "").split())


def _kind_of(site: EditSite) -> tuple[str, int]:
    """What a rule is about: an operator, with as many inputs."""
    return site.changed_step.op_type, sum(map(bool, site.changed_step.inputs))


def _operator_in_front(site: EditSite) -> str:
    """The operator whose result a step reads first; "" where that is an input or a constant."""
    step, made = site.changed_step, site.reference.program.steps_of
    return made[step.inputs[0]].op_type if step.inputs and step.inputs[0] in made else ""
