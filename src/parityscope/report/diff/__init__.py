"""What changed between two studies -> text | json | html | markdown: the page of `parityscope diff`. All of it is pure."""

from __future__ import annotations

from parityscope.report.diff.document import KIND, changes_document
from parityscope.report.diff.markdown import changes_as_markdown
from parityscope.report.diff.page import changes_as_html
from parityscope.report.diff.text import changes_as_text
from parityscope.report.forms import Forms

__all__ = ["FORMS", "KIND", "changes_document"]

FORMS = Forms(
    title="a diff", as_text=changes_as_text, as_html=changes_as_html, others={"markdown": changes_as_markdown}
)
