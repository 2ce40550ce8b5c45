"""Experiments of a study -> text: the list of them, or one that was run again beside what the study says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report.forms import plain_forms
from parityscope.report.words import format_figure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def _list_lines(document: Mapping[str, Any]) -> Iterator[str]:
    if "experiments" in document:
        for one in document["experiments"]:
            yield f"{one['identity']:<12} {one['outcome']:<12} {one['experiment']['claim']}"
        if not document["experiments"]:
            yield "the study holds no experiment"
        return
    experiment, now = document["experiment"], document["now"]
    yield f"{document['identity']}: {experiment['claim']}"
    for name, words in (
        ("change", "change"),
        ("measure", "measured"),
        ("if_true", "if true"),
        ("if_false", "if false"),
    ):
        yield f"  {words + ':':<10} {experiment[name]}"
    yield f"  then:      {_outcome_words(document['then'])}"
    yield f"  now:       {_outcome_words(now) if now else 'no outcome: ' + document['reason']}"
    if now is None and document["fix"]:
        yield f"  fix:       {document['fix']}"
    for note in document["notes"]:
        yield f"  note:      {note}"
    if now is not None:
        yield f"  the outcome is {'that' if document['same'] else 'not that'} of the study"


def _outcome_words(evidence: Mapping[str, Any]) -> str:
    return (
        f"{evidence['outcome']}, {format_figure(evidence['before'])} -> {format_figure(evidence['after'])}: "
        f"{evidence['because']}"
    )


FORMS = plain_forms("experiment", _list_lines)
