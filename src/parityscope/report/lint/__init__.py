"""What lint found -> text | json | html: the page of `parityscope lint`.

`document` makes the strict-JSON mapping that everything else is drawn from. All of it is pure.
"""

from __future__ import annotations

from parityscope.report.forms import Forms
from parityscope.report.lint.document import document
from parityscope.report.lint.page import as_html
from parityscope.report.lint.text import as_text

__all__ = ["FORMS", "as_html", "as_text", "document", "render"]

FORMS = Forms(title="lint", as_text=as_text, as_html=as_html)
render = FORMS.render
