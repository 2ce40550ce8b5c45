"""Every pair that was checked -> text | json | html | junit | sarif | github | markdown. All of it is pure."""

from __future__ import annotations

from pathlib import Path

from parityscope.report.check.annotations import check_as_github
from parityscope.report.check.cases import check_as_junit
from parityscope.report.check.document import check_document
from parityscope.report.check.markdown import check_as_markdown
from parityscope.report.check.results import check_as_sarif
from parityscope.report.check.text import print_check
from parityscope.report.check.view import view_check
from parityscope.report.forms import Forms, Page

__all__ = ["FORMS", "check_document"]

FORMS = Forms(
    title="a check",
    view=view_check,
    show=print_check,
    page=Page(template=Path(__file__).with_name("check.html.j2")),
    others={
        "junit": check_as_junit,
        "sarif": check_as_sarif,
        "github": check_as_github,
        "markdown": check_as_markdown,
    },
)
