"""A catalogue: what a language says for each English text, as the files of its folder hold it.

A file is in gettext's format, `msgid "..."` over `msgstr "..."`, which editors for translators open. In a msgid each `{}` stands
for what the code fills in; the msgstr puts them where its language wants them, by their order: `{0}`, `{1}`. A text without
any is looked up as it is. Comments begin with `#`.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PAIR = re.compile(r'^msgid (".*")\nmsgstr (".*")$', re.MULTILINE)
# A word of a text that is there whole, whatever is filled in beside it.
WORD = re.compile(r"\w+")
_FIELD = "{}"
_BEHIND = re.compile(r" \([a-z][^()]*\)$")  # words in parentheses of their own at the end
_LIGHT = 12  # letters; chosen
_OPENING, _CLOSING = "'\"“‘`", "'\"”’`"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentencePattern:
    """A text with places to fill in.

    `literals` are what stands before, between and behind them; `quoted` are the places that hold a name in quotes, which is no
    word of ours; `told` is what the language says, as `str.format` takes it. A `light` one has so few words of its own, and
    none to begin with or in parentheses at its end, that it would fit into any sentence: only a few words each are taken for
    what fills it.
    """

    literals: tuple[str, ...]
    quoted: frozenset[int]
    told: str
    weight: tuple[int, int]  # letters and signs of the literals: of two patterns that fit the heavier one says more
    light: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """A language: whole texts, and patterns by a word that each text of theirs holds ("" for those that have none).

    `longest` is how many letters the longest whole text has.
    """

    whole: Mapping[str, str]
    longest: int
    patterns: Mapping[str, tuple[SentencePattern, ...]]


def entries_of(code: str) -> dict[str, str]:
    """Every pair of a language's files: English text -> what that language says."""
    texts = [path.read_text("utf-8") for path in sorted((Path(__file__).parent / code).glob("*.po"))]
    quoted = (side for text in texts for pair in _PAIR.findall(text) for side in pair)
    read = json.loads(f"[{','.join(quoted)}]")  # one list: a call for each text takes ten times as long
    return dict(zip(read[::2], read[1::2], strict=True))


@functools.cache
def catalogue_of(code: str) -> Catalogue:
    """The catalogue of the language of that code."""
    held = entries_of(code)
    patterns = [_make_pattern(own, told) for own, told in held.items() if _FIELD in own]
    words = [tuple(_distinctive_words(one)) for one in patterns]
    common = Counter(itertools.chain.from_iterable(words))
    by_word: dict[str, list[SentencePattern]] = defaultdict(list)
    for one, its in zip(patterns, words, strict=True):
        by_word[min(its, key=lambda word: (common[word], word), default="")].append(one)
    ordered = {word: tuple(sorted(found, key=lambda one: one.weight, reverse=True)) for word, found in by_word.items()}
    whole = {own: told for own, told in held.items() if _FIELD not in own}
    return Catalogue(whole=whole, longest=max(map(len, whole), default=0), patterns=ordered)


def _make_pattern(own: str, told: str) -> SentencePattern:
    literals = tuple(own.split(_FIELD))
    quoted = frozenset(
        place
        for place, (before, behind) in enumerate(itertools.pairwise(literals))
        if before and behind and before[-1] in _OPENING and behind[0] in _CLOSING
    )
    letters = sum(map(str.isalpha, itertools.chain.from_iterable(literals)))
    light = 0 < letters < _LIGHT and not literals[0] and not _BEHIND.search("{}".join(literals))
    return SentencePattern(
        literals=literals, quoted=quoted, told=told, weight=(letters, sum(map(len, literals))), light=light
    )


def _distinctive_words(pattern: SentencePattern) -> Iterator[str]:
    """The words of the literals that no filled-in text can become a part of."""
    last = len(pattern.literals) - 1
    for place, literal in enumerate(pattern.literals):
        for found in WORD.finditer(literal):
            grows = (found.start() == 0 and place > 0) or (found.end() == len(literal) and place < last)
            if not grows:
                yield found.group()
