"""What needs no model of the user's: this machine, the pages of codes, catalogues, and two preprocessings beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.api.results import Report
from parityscope.errors import EXIT_OF, ParityError

if TYPE_CHECKING:
    from pathlib import Path

    from parityscope.case.formats.loader import UserFunction
    from parityscope.checks.preparing import Parting


def report_machine() -> Report[dict[str, Any]]:
    """What can run here and in what arithmetic, what is missing, and the facts about this machine that change results."""
    from parityscope.backends.examining import examine_machine
    from parityscope.report.machine import FORMS

    found = examine_machine()
    return Report(document=found, record=found, forms=FORMS)


def report_page(code: str | None) -> Report[str]:
    """The page of a code, or without one the table of all codes.

    Raises:
        ParityError: there is no such code.
    """
    from parityscope.catalogue import WORDS, find_page, whole_catalogue
    from parityscope.report.explained import FORMS

    if code is not None:
        page = find_page(code)
        return Report(document={"code": code.upper(), "page": page}, record=page, forms=FORMS)
    titles = {one.code: one.title for one in whole_catalogue().values()}
    return Report(document={"codes": titles, "words": dict(WORDS)}, record="", forms=FORMS)


def report_plugins(kind: str | None) -> Report[dict[str, dict[str, str]]]:
    """What there is of a kind of plug-in, or of every kind: what each is, by name.

    Raises:
        ParityError: there is no such kind.
    """
    from parityscope.api.catalogues import CATALOGUES
    from parityscope.report.listed_plugins import FORMS

    if kind is not None and kind not in CATALOGUES:
        raise ParityError(f"there is no catalogue {kind!r}", fix=f"use one of: {', '.join(CATALOGUES)}")
    found = {name: CATALOGUES[name]() for name in ([kind] if kind else CATALOGUES)}
    return Report(document=found, record=found, forms=FORMS)


def report_preprocessing(
    reference: str | UserFunction, candidate: str | UserFunction, images: Path, samples: int | None
) -> Report[Parting]:
    """At which step two preprocessings part on the first `samples` images of a folder, and what is done differently there.

    Raises:
        ParityError: as `compare_files`.
    """
    from parityscope.checks.preparing import compare_files
    from parityscope.report.preprocessing import FORMS, preprocessing_document

    found = compare_files(reference, candidate, images, samples)
    document = preprocessing_document(found)
    return Report(document=document, record=found, forms=FORMS, exit=EXIT_OF[document["verdict"]])
