"""What lint found -> text | json | html: the page of `parityscope lint`.

`lint_document` makes the strict-JSON mapping that everything else is drawn from. All of it is pure.
"""

from __future__ import annotations

from parityscope.report.forms import Forms
from parityscope.report.lint.document import lint_document
from parityscope.report.lint.page import lint_as_html
from parityscope.report.lint.text import lint_as_text

__all__ = ["FORMS", "lint_as_html", "lint_as_text", "lint_document", "render"]

FORMS = Forms(title="lint", as_text=lint_as_text, as_html=lint_as_html)
render = FORMS.render
