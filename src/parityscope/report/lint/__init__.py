"""What lint found -> text | json | html: the page of `parityscope lint`.

`lint_document` makes the strict-JSON mapping that everything else is drawn from. All of it is pure.
"""

from __future__ import annotations

from parityscope.report._page import TEMPLATES
from parityscope.report.forms import Forms, Page
from parityscope.report.lint.document import lint_document
from parityscope.report.lint.text import print_lint
from parityscope.report.lint.view import view_lint

__all__ = ["FORMS", "lint_document", "render"]

FORMS = Forms(title="lint", view=view_lint, show=print_lint, page=Page(template=TEMPLATES / "lint.html.j2"))
render = FORMS.render
