"""Every pair that was checked -> text | json | html | junit | sarif | github | markdown. All of it is pure."""

from __future__ import annotations

from parityscope.report.check.annotations import check_as_github
from parityscope.report.check.cases import check_as_junit
from parityscope.report.check.document import check_document
from parityscope.report.check.markdown import check_as_markdown
from parityscope.report.check.page import check_as_html
from parityscope.report.check.results import check_as_sarif
from parityscope.report.check.text import check_as_text, summary_as_text
from parityscope.report.forms import Forms

__all__ = ["FORMS", "check_document", "summary_as_text"]

FORMS = Forms(
    title="a check",
    as_text=check_as_text,
    as_html=check_as_html,
    others={
        "junit": check_as_junit,
        "sarif": check_as_sarif,
        "github": check_as_github,
        "markdown": check_as_markdown,
    },
)
