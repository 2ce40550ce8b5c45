"""What changed between two studies -> text | json | html | markdown: the page of `parityscope diff`. All of it is pure."""

from __future__ import annotations

from pathlib import Path

from parityscope.report.diff.document import KIND, changes_document
from parityscope.report.diff.markdown import changes_as_markdown
from parityscope.report.diff.text import print_changes
from parityscope.report.diff.view import view_changes
from parityscope.report.forms import Forms, Page

__all__ = ["FORMS", "KIND", "changes_document"]

FORMS = Forms(
    title="a diff",
    view=view_changes,
    show=print_changes,
    page=Page(template=Path(__file__).with_name("diff.html.j2")),
    others={"markdown": changes_as_markdown},
)
