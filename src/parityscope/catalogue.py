"""Every code that a finding can have, in one catalogue: what checks, lint rules and logs say, by family."""

from __future__ import annotations

import inspect
import re
from difflib import get_close_matches
from functools import partial
from itertools import groupby
from textwrap import indent
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from parityscope.errors import ParityError
from parityscope.languages import OWN, current_language, say_in_language
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from parityscope.checks import Check, Example
    from parityscope.linting import Rule

_PARTS = re.compile(r"\n\s*\n(?=\S)|\n\n(?=    )")
# What a part of a page begins with: what goes wrong, how it shows, its sources.
_LABEL = re.compile(r"((?:What|How) [^:\n]{1,40}|Sources?|Examples?): ")
_CODE = "    "

# What a report can say beside codes: facts about samples and figures, which are causes of nothing.
WORDS: Mapping[str, str] = MappingProxyType(
    {
        "WORST": """Which samples are worst, and what they have in common.

What it says: of at least twenty samples some have an error of more than four times the median; they are named, the worst first.
What holds for most of them and for few of the others (a range, a size, a class, a source, a rare value) is told if chance would
make it so in one of a thousand cases at most (Fisher's exact test, times the number of statements that were tried).

What to do: look at these samples first; what they share is where to look for a cause. `--samples` and a folder of them alone
repeat the diagnosis on nothing else.

Source: R. A. Fisher, The Design of Experiments, 1935.""",
        "SURE": """Samples were drawn until it was sure whether they keep their budgets (`--until-sure 95%`).

What it says: how many samples were drawn, how many of them miss a budget, and on which side of the wanted share the others of
their kind are. The figure holds however often was looked: it is a test that may be looked at after every sample.

What to do: nothing. Where all samples were drawn and it is still open, the report says so: give more samples.

Source: J. Ville, Etude critique de la notion de collectif, 1939.""",
        "CLAIM": """What ONNX Runtime's CPU provider says of a model that `parityscope evaluate` rounds faithfully.

What it says: the error that the same model seems to have when it is run there. That provider computes FP16 in FP32 and leaves the
roundings between operators out, so that its figure is too good: a device that stores FP16 does not reach it.

What to do: trust the rounded figure beside it, and the device itself above both.

Source: docs/evaluate.md.""",
    }
)

# The letters that a code begins with, in the order of the questions; the words are for readers.
_FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        "DAT": "The data and the reference",
        "PRE": "Preprocessing",
        "BND": "Inputs and outputs",
        "RNG": "Range of the number format",
        "ACC": "Accuracy of the arithmetic",
        "CST": "Precision that was asked for",
        "QNT": "Quantization",
        "FUS": "Layers and fusions",
        "SHP": "Shapes, batches and padding",
        "SEQ": "Repeated calls",
        "EXP": "Export and conversion",
        "ENV": "Environment and settings",
        "RUN": "The run itself",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A code, who says it ("check", "lint" or "log"), its title, and how to get its page, with an example."""

    code: str
    said_by: str
    title: str
    page: Callable[[], str]


def whole_catalogue() -> dict[str, Entry]:
    """Every entry by its code, in order of families and numbers."""
    from parityscope.checks import check_page, known_checks
    from parityscope.linting import known_rules, rule_page
    from parityscope.logs.pages import log_codes, log_page

    found = [
        *(_entry_of(one, "check", check_page, _tell_example) for one in known_checks().values()),
        *(_entry_of(one, "lint", rule_page, lambda _: "") for one in known_rules().values()),
        *(
            Entry(code=code, said_by="log", title=_heading_of(log_page(code)), page=partial(log_page, code))
            for code in log_codes()
        ),
    ]
    return {one.code: one for one in sorted(found, key=_place_of)}


def find_page(asked: str) -> str:
    """The page of a code or of a word.

    Raises:
        ParityError: there is none.
    """
    known, code = whole_catalogue(), asked.upper()
    if code in WORDS:
        return WORDS[code]
    if code not in known:
        near = [one for one in known if one[:3] == code[:3]] or get_close_matches(code, [*known, *WORDS], n=5)
        fix = f"use one of: {', '.join(near)}" if near else "parityscope explain, without a code, names them all"
        raise ParityError(f"there is no check or rule {asked!r}", fix=fix)
    return known[code].page()


def tell_page(page: str) -> str:
    """A page in the language that is spoken, part by part; its code and the names of its sources stay as they are."""
    if current_language() == OWN:
        return page
    return "\n\n".join(part if part.startswith(_CODE) else _tell_part(part) for part in _PARTS.split(page.strip("\n")))


def _tell_part(part: str) -> str:
    told = " ".join(part.split())
    if (label := _LABEL.match(told)) is None:
        return say_in_language(told)
    mark = "：" if say_in_language(label[1]) != label[1] else ": "  # noqa: RUF001 - as Chinese has it
    body = told[label.end() :]
    return f"{say_in_language(label[1])}{mark}{body if label[1].startswith('Source') else say_in_language(body)}"


def families(entries: Iterable[Entry]) -> Iterator[tuple[str, list[Entry]]]:
    """The words of each family, and its entries."""
    for family, found in groupby(entries, key=lambda one: one.code[:3]):
        yield _FAMILIES.get(family, family), list(found)


def lines_by_family(entries: Iterable[Entry]) -> Iterator[str]:
    """A table: a heading a family, then code, who says it, and title."""
    for number, (heading, found) in enumerate(families(entries)):
        if number:
            yield ""
        yield say_in_language(heading)
        for one in found:
            yield f"  {one.code}  {one.said_by:<5}  {say_in_language(one.title)}"


def _entry_of(one: Check | Rule, said_by: str, page: Callable[[str], str], tell: Callable[[Any], str]) -> Entry:
    """The entry of a check or a rule: below its page stands the first example in which it must be found."""

    def whole_page() -> str:
        found = one.holds[0]
        model = indent(inspect.cleandoc(found.model), "    ")
        return f"{page(one.code)}\n\nExample: {tell(found)}this model. A test runs it.\n\n{model}"

    return Entry(code=one.code, said_by=said_by, title=one.title, page=whole_page)


def _tell_example(example: Example) -> str:
    """What the candidate of an example is, as the beginning of a sentence."""
    seen = [
        f"{one.layer_type} in {one.precision}"
        f"{f' asked for {one.asked}' * bool(one.asked)}{f' on {one.provider}' * bool(one.provider)}"
        for one in (example.executed.layers if example.executed else ())
    ]
    told = [
        (example.candidate_model, "another file as the candidate"),
        (example.fault, "a recording in which one tensor was changed"),
        (example.inputs_fault, "a recording made of changed inputs"),
        (example.outputs_fault, "a recording whose outputs were changed"),
        (example.executed, f"the candidate {example.candidate}, which tells of {', '.join(seen)}"),
        (example.candidate, f"the candidate {example.candidate.replace('{network}', 'torch')}"),
    ]
    words = next((words for given, words in told if given), "the reference")
    wrong = "" if example.reference.isalpha() else f", the reference {example.reference.replace('{network}', 'torch')}"
    wrong = ", a reference whose outputs were changed" if example.reference_fault else wrong
    return f"{words}{f' declared as {example.declared}' * bool(example.declared)}{wrong}, and "


def _place_of(entry: Entry) -> tuple[int, str]:
    families = list(_FAMILIES)
    family = entry.code[:3]
    return (families.index(family) if family in families else len(families)), entry.code


def _heading_of(page: str) -> str:
    """What a page's first line is about: up to its colon, if it has one."""
    first = page.strip().splitlines()[0].partition(":")[0].removesuffix(".")
    return first[:1].upper() + first[1:]
