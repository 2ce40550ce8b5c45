"""What a mistyped word was meant to be: an error that lists what there is says which of these comes near.

Verbs, options, targets, formats, metrics and codes all end in such an error, so that one place looks for all of them.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher, get_close_matches
from itertools import takewhile

from parityscope.errors import ParityError

_LIST = re.compile(r"use one of: (?P<known>[^;.]+)")
_TYPED = re.compile(r"'([^']+)'")
_NO_CANDIDATE = "Missing option '--candidate'"
_OPTIONS = re.compile(r"^No such option: (?P<typed>-\S+)(?P<near>.*)")
_OPTION = re.compile(r"--[a-z-]+")
_NEAR = 0.6  # of signs that two words share; difflib's own: "fp61" and "fp8" are apart, "bf61" and "bf16" are not
_MOST = 16


def add_suggestion(error: ParityError) -> ParityError:
    """The error with "did you mean" before what there is, where a word in its problem comes near one of them."""
    listed = _LIST.search(error.fix)
    typed = _TYPED.search(error.problem)
    if not listed or not typed:
        return error
    known = {word.strip().lower(): word.strip() for word in listed["known"].split(",")}
    word = typed[1].lower()
    near = get_close_matches(word, known, n=_MOST, cutoff=_NEAR)
    if not near:
        return error
    # Of equally near ones that which begins likewise: RNG001 for RNG01, not RNG201.
    meant = max(near, key=lambda one: (SequenceMatcher(None, one, word).ratio(), _shared_start(one, word)))
    return ParityError(error.problem, where=error.where, fix=f"did you mean {known[meant]}? {error.fix}")


def _shared_start(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def suggest_option(message: str) -> str:
    """Of the options that typer thinks a mistyped one may have been meant to be, the nearest; "" where it knows none."""
    found = _OPTIONS.match(message)
    near = _OPTION.findall(found["near"]) if found else []
    return max(near, key=lambda one: SequenceMatcher(None, one, found["typed"]).ratio()) if found and near else ""


def suggest_candidate(message: str, words: list[str]) -> str:
    """The second word behind a verb where `--candidate` is missing: the deployment, put beside the model; "" where none is."""
    plain = list(takewhile(lambda word: not word.startswith("-"), words))
    return plain[2] if message.startswith(_NO_CANDIDATE) and len(plain) > 2 else ""
