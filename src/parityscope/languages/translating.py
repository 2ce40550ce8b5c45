"""An English text in another language: looked up whole, else by a pattern, else sentence by sentence and part by part.

What the catalogue lacks stays English: a name, a number, a command. What is filled into a pattern is translated likewise, but for
names in quotes.
"""

from __future__ import annotations

import bisect
import functools
import re
from typing import TYPE_CHECKING

from parityscope.languages.catalogue import WORD, catalogue_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from parityscope.languages.catalogue import Catalogue, SentencePattern

_CHINESE = re.compile("[\u2e80-\u9fff]")
# Where a text is parted when nothing fits it whole, the strongest first, and what stands there in its place.
_PARTS = (
    (re.compile(r"(?<=[^\s.\d])\. (?=\S)|(?<=[\d%\])])\. (?=[A-Z])"), "。"),
    (re.compile(r"; "), "；"),
    (re.compile(r": "), "："),
    (re.compile(r", and (?=\S)|, (?=\D)"), "，"),
)
_END = re.compile(r"(?s)(.*?)([.:]?)(\s*)")
_ENDS = {".": "。", ":": "："}
# What stands before a text and is no word of it: a mark, the code of a check or an experiment, the number of an item.
_LEAD = re.compile(r"((?:[^\w\s<>'\"(\[/|-]+|-|[A-Z]{3}\d{3}(?:-\d+)?(?:@\d+)?|\d+\.) )(?=\S)")
# What stands behind a finding's sentence: its code and its role.
_TAIL = re.compile(r"(?P<told>.*\S) \[(?P<code>[A-Z]{3}\d{3}), (?P<role>[^][]+)\]")
# A constant or an input by its name in the standard and its role, with the tensor's own name: one name, wherever it stands.
_LABEL = re.compile(r"\b(?P<kind>constant|input) (?P<name>\w+)(?:, (?P<role>[a-z. _]+))? (?P<tensor>\('[^']*'\))(?! =)")
_HELD = "'\N{CURRENCY SIGN}%d'"  # what stands in a label's place meanwhile
_FEW_WORDS = 3  # what may fill a light pattern; chosen
_MARK = re.compile(r"[.;:] ")
_ENGLISH = re.compile(r"(?<![\w'/._-])[a-z]{2,}(?![\w'/._-])")
_MOST_TRIED = 4  # patterns whose words are compared; chosen
_POINT = re.compile(r"\d\.\d")  # of a number, and no end of a sentence
_LEAST_WORDS = re.compile(r"[A-Za-z]{2,}")


@functools.lru_cache(maxsize=16384)
def translate(text: str, code: str) -> str:
    """`text` in the language of that code; what its catalogue lacks stays as it is."""
    if not _LEAST_WORDS.search(text):
        return text
    if labels := list(_LABEL.finditer(text)):
        return _translate_around(text, labels, code)
    held = catalogue_of(code)
    inner = text.strip()
    said = _translate_held(inner, held, code)
    return text if said is None else text.replace(inner, said, 1)


def _translate_around(text: str, labels: Sequence[re.Match[str]], code: str) -> str:
    """A text whose labels are names while the rest is translated."""
    for number, label in enumerate(labels):
        text = text.replace(label.group(), _HELD % number)
    first = f"{_HELD % 0} "
    behind = translate(text.removeprefix(first), code)
    # What is done to it is often known by itself.
    said = first + behind if text.startswith(first) and not _ENGLISH.search(behind) else translate(text, code)
    for number, label in enumerate(labels):
        role = f", {translate(label['role'], code)}" if label["role"] else ""
        told = f"{translate(label['kind'], code)} {label['name']}{role} {label['tensor']}"
        said = said.replace(_HELD % number, told)
    return said


def missing_in(text: str, code: str) -> bool:
    """Whether the language lacks something for `text`: not one word of it was said in that language."""
    return bool(_LEAST_WORDS.search(text)) and not _CHINESE.search(translate(text, code))


def _translate_held(text: str, held: Catalogue, code: str) -> str | None:
    """What the language says, None where it has nothing for it."""
    if (whole := held.whole.get(text)) is not None:
        return whole
    if text[-1:] not in ".:" and (whole := held.whole.get(f"{text}.")) is not None:
        return whole.removesuffix("。")
    if text.endswith(".") and (whole := held.whole.get(text[:-1])) is not None:
        return f"{whole}。"
    if tail := _TAIL.fullmatch(text):
        return f"{translate(tail['told'], code)} [{tail['code']}，{translate(tail['role'], code)}]"
    said = _best_told(text, held, code)
    if (said is None or _ENGLISH.search(said)) and text[-1:] not in ".:":
        # A sentence that is told without its full stop.
        whole = _best_told(f"{text}.", held, code)
        if (
            whole is not None
            and whole.endswith("。")
            and (said is None or _count_english(whole) < _count_english(said))
        ):
            return whole[:-1]
    if said is not None:
        return said
    if (lead := _LEAD.match(text)) and (rest := text[lead.end() :]):
        return f"{lead.group()}{translate(rest, code)}"
    body, end, _ = _END.fullmatch(text).groups()  # type: ignore[union-attr]
    if end and body and (whole := held.whole.get(body)) is not None:
        return f"{whole}{_ENDS[end]}"
    return _in_parts(text, code)


def _best_told(text: str, held: Catalogue, code: str) -> str | None:
    """What the first patterns that fit say, or the text part by part: whichever leaves the fewest English words.

    A pattern that begins or ends with a place to fill in may swallow a sentence beside its own.
    """
    fitting: list[tuple[bool, str]] = []
    for pattern in _candidate_patterns(text, held):
        filled = _fill_places(text, pattern.literals)
        if filled is None or (pattern.light and any(len(part.split()) > _FEW_WORDS for part in filled)):
            continue
        swallows = any(
            not literal and bool(_MARK.search(part))
            for literal, part in ((pattern.literals[0], filled[0]), (pattern.literals[-1], filled[-1]))
        )
        fitting.append((swallows, _fill_pattern(pattern, filled, code)))
        if pattern.literals[0] and not _MARK.search(filled[-1]):
            break
        if len(fitting) == _MOST_TRIED:
            break
    if fitting and _MARK.search(text) and (parts := _in_parts(text, code)) is not None:
        fitting.append((False, parts))
    _, said = min(fitting, key=lambda one: (_count_english(one[1]), one[0]), default=(False, None))
    return said


def _count_english(text: str) -> int:
    return len(_ENGLISH.findall(text))


def _candidate_patterns(text: str, held: Catalogue) -> Sequence[SentencePattern]:
    """The patterns one of whose words the text holds, the heaviest first."""
    words = dict.fromkeys(WORD.findall(text))
    found = [pattern for word in ("", *words) for pattern in held.patterns.get(word, ())]
    return sorted(found, key=lambda pattern: pattern.weight, reverse=True)


def _fill_places(text: str, literals: Sequence[str]) -> list[str] | None:
    """What stands between the literals, each found as far to the left as can be; None where they do not fit."""
    first, *middle, last = literals
    if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
        return None
    at, end = len(first), len(text) - len(last)
    found = []
    for literal in middle:
        place = text.find(literal, at, end)
        while place >= 0 and literal == "." and _POINT.match(text, place - 1):
            place = text.find(literal, place + 1, end)
        if place < 0:
            return None
        found.append(text[at:place])
        at = place + len(literal)
    return [*found, text[at:end]]


def _fill_pattern(pattern: SentencePattern, filled: Sequence[str], code: str) -> str:
    values = [part if place in pattern.quoted else translate(part, code) for place, part in enumerate(filled)]
    return pattern.told.format(*values)


def _in_parts(text: str, code: str) -> str | None:
    """The text parted at its strongest mark, where the language has something for one part at least."""
    for mark, between in _PARTS:
        parts = list(_split_around_whole(text, mark, catalogue_of(code)))
        if len(parts) < 2:
            continue
        said = [translate(part, code) for part in parts]
        if any(new != old for new, old in zip(said, parts, strict=True)):
            return "".join(_join_parts(said, between))
    return None


def _split_around_whole(text: str, mark: re.Pattern[str], held: Catalogue) -> Iterator[str]:
    """The text parted at a mark, but for what the language has as one text with marks in it."""
    ends = [*((found.start(), found.end()) for found in mark.finditer(text)), (len(text), len(text))]
    start = place = 0
    while place < len(ends):
        later = range(bisect.bisect(ends, start + held.longest, key=lambda end: end[0]) - 1, place, -1)
        place = next(
            (at for at in later if (start or at < len(ends) - 1) and text[start : ends[at][0]] in held.whole), place
        )
        yield text[start : ends[place][0]]
        start = ends[place][1]
        place += 1


def _join_parts(parts: Sequence[str], between: str) -> Iterator[str]:
    for place, part in enumerate(parts):
        last = place == len(parts) - 1
        chinese = _CHINESE.search(part)
        yield part.removesuffix(".") + "。" if last and between == "。" and chinese and part.endswith(".") else part
        if not last:
            yield between
