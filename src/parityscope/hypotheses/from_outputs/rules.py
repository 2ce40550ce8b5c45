"""The same edit at several places at once: at every step of an operator, or at each that reads the result of another operator.

What a converter, an opset or a fusion does wrong it does wherever it applies.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.hypotheses.from_outputs.guess import RULE_BITS, Guess
from parityscope.hypotheses.from_outputs.reference import READ
from parityscope.hypotheses.from_values import functions_in_place
from parityscope.hypotheses.schemas import REAL, gives_decisions, schema_of
from parityscope.operators import of_kind, with_trait

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import onnx

    from parityscope.evaluation.program import ProgramStep
    from parityscope.hypotheses.edits import StretchEdit
    from parityscope.hypotheses.from_outputs.sites import EditSite

    Members = Sequence[tuple[Guess, StretchEdit]]

# What it takes to say that a step or an input is left out. Each rule is a run of most of the network: longer ones are tried last.
_LEFT_OUT_BITS = 4.0
_NUMBERS = re.compile(r"\[?(-?[\d.]+(?:e[+-]?\d+)?)\]? in place of \[?(-?[\d.]+(?:e[+-]?\d+)?)\]?$")
_NEAREST = 8  # other numbers that are tried at all places; chosen, as each is a run of most of the network
_SAME = 1e-4  # powers of ten: what FP32 leaves of a number that is written down in decimals
_ATTRIBUTE = re.compile(r"attribute (\w+) ")
EVERYWHERE = ", everywhere"  # behind the kind of an edit that is made at several places
_INSTEAD = " in place of "
_POINTWISE, _ACTIVATIONS = with_trait("pointwise"), of_kind("activation")
_ABOUT_ONE = re.compile(
    r" ?\('[^']*'\)| of '[^']*'(?= in place of it)|'[^']*'| = \S+(?= left out)|"
    r"(?<=in place of )-?[\d.e+-]+$|\b[\d.e+-]+ becomes \S+"
)


def list_rules(guesses: Sequence[Guess], most_bits: float = _LEFT_OUT_BITS) -> list[Guess]:
    """What can be done in so few bits at all places of a kind, and at all of these that stand behind one operator.

    Longer edits are joined where something is expected of them at each place.
    """
    sites = {(one.site.step.index, one.site.inner and one.site.output): one.site for one in guesses}.values()
    places = Counter(_kind_of(one) for one in sites)
    behind_each = Counter((_kind_of(one), _operator_in_front(one)) for one in sites)
    rules = []
    for members in find_alike((one, one.made()) for one in guesses if one.made().bits <= most_bits):
        kind = _kind_of(members[0][0].site)
        # What is longer has no meaning at some of them: a kernel of one element is not turned.
        if len(members) == places[kind] or members[0][1].bits > _LEFT_OUT_BITS:
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


def list_function_rules(sites: Sequence[EditSite]) -> list[Guess]:
    """Another function of one variable at all places that compute the same, in one step or in several (x times Sigmoid of x)."""
    places: dict[tuple[str, str], list[tuple[EditSite, str]]] = {}
    for site in sites:
        if (told := _function_at(site)) is not None:
            places.setdefault(told[:2], []).append((site, told[2]))
    rules = []
    for (op_type, behind), members in places.items():

        def say(name: str, op_type: str = op_type) -> str:
            return f"{name} in place of {op_type}"

        each = [list(functions_in_place(site.stretch, tensor, say)) for site, tensor in members]
        for edits in zip(*each, strict=True) if len(members) > 1 else ():
            guesses = [
                Guess(site=site, kind="operators", edit=edit) for (site, _), edit in zip(members, edits, strict=True)
            ]
            rules.append(join_alike([(one, one.made()) for one in guesses], behind))
    return rules


def _function_at(site: EditSite) -> tuple[str, str, str] | None:
    """What a step computes of one tensor: its operator, those before it that take part, and the tensor; None of any other."""
    step, program = site.changed_step, (site.inner or site.reference).program
    if not site.whole_step or step.op_type not in _POINTWISE:
        return None

    def read_by(one: ProgramStep) -> set[str]:
        return {name for name in one.inputs if name and name not in program.constants}

    before: set[str] = set()
    front = read_by(step)
    while len(front) > 1:
        makers = [program.steps_of[name] for name in front & program.steps_of.keys()]
        made = max(makers, key=lambda one: one.index, default=None)
        if made is None or made.op_type not in _POINTWISE:
            return None
        front, before = front - {*made.outputs} | read_by(made), before | {made.op_type}
    tensor = next(iter(front), "")
    if tensor not in step.inputs or _ACTIVATIONS.isdisjoint({step.op_type, *before}):
        return None
    return step.op_type, " and ".join(sorted(before)), tensor


def list_number_rules(guesses: Sequence[Guess]) -> list[Guess]:
    """Another number in the place of one that several steps have alike: the epsilon of every normalization, a scale, a slope.

    Of all that is said of the same steps and about the same number, the nearest numbers.
    """
    by_place: dict[tuple[str, ...], list[tuple[float, Members]]] = {}
    for members in find_alike((one, one.made()) for one in guesses):
        edit = members[0][1]
        numbers = _NUMBERS.search(edit.words)
        if numbers is None or (edit.node is not None and not _sets_real(edit.node, edit.words)):
            continue
        away = _distance(*map(float, numbers.groups()))
        if away > _SAME:
            place = (_ABOUT_ONE.sub("", edit.words[: numbers.start()]), *(one.site.output for one, _ in members))
            by_place.setdefault(place, []).append((away, members))
    nearest = [sorted(every, key=lambda one: one[0])[:_NEAREST] for every in by_place.values()]
    return [join_alike(members) for every in nearest for _, members in every]


def reads_number(site: EditSite) -> bool:
    """Whether the constants that a step reads are one real number each."""
    constants = site.reference.program.constants
    held = [constants[name] for name in site.changed_step.inputs if name in constants]
    return bool(held) and all(one.size == 1 and one.dtype.kind == "f" for one in held)


def reads_threshold(site: EditSite) -> bool:
    """Whether a step decides by a real number that it reads: no derivative leads to another one."""
    constants, step = site.reference.program.constants, site.changed_step
    held = [constants[name] for name in step.inputs if name in constants]
    decides = gives_decisions(schema_of(site.node, site.stretch.context.opsets))
    return decides and any(one.size == 1 and one.dtype.kind == "f" for one in held)


def _sets_real(node: onnx.NodeProto, words: str) -> bool:
    """Whether the attribute that an edit is about, by its words, is a real number of the node that it puts in."""
    named = _ATTRIBUTE.match(words)
    return named is not None and any(one.name == named[1] and one.type == REAL for one in node.attribute)


def _distance(number: float, other: float) -> float:
    """How many powers of ten are between two numbers; what changes its sign is farther than all others."""
    return abs(math.log10(number / other)) if number * other > 0 else math.inf


def find_alike(edits: Iterable[tuple[Guess, StretchEdit]]) -> Iterator[Members]:
    """The places at which the same can be said of the same operator, two or more, in the order of the network's steps."""
    alike: dict[tuple[str, str, str], dict[str, tuple[Guess, StretchEdit]]] = {}
    for guess, edit in edits:
        # Inputs are no operator: what is done to all of them at once is for the checks of bindings to say.
        if not guess.site.output.endswith(READ):
            key = guess.site.changed_step.op_type, guess.kind, _words_of_rule(edit)
            alike.setdefault(key, {})[guess.site.output] = guess, edit
    for by_site in alike.values():
        members = sorted(by_site.values(), key=lambda one: one[0].site.step.index)
        # Of two results of one step only one is another step; nodes inside of one are changed together.
        alone = [one.site.step.index for one, _ in members if one.site.inner is None]
        if len(members) > 1 and len(set(alone)) == len(alone):
            yield members


def join_alike(members: Members, behind: str = "") -> Guess:
    """One guess that makes all of these edits; nothing is expected of it yet."""
    first, edit = members[0]
    op_type = first.site.changed_step.op_type
    live = first.site.reference.live
    inside = (one for step in live for body in step.bodies.values() for one in body.steps)
    there = sum(step.op_type == op_type for step in itertools.chain(live, inside))
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
    step, made = site.changed_step, (site.inner or site.reference).program.steps_of
    return made[step.inputs[0]].op_type if step.inputs and step.inputs[0] in made else ""
