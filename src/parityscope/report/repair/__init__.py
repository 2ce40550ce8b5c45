"""The outcome of a repair -> text | json | html.

`document` makes the strict-JSON mapping that everything else is drawn from; `view` words it. All of it is pure.
"""

from __future__ import annotations

from parityscope.report.forms import Forms
from parityscope.report.repair.document import document
from parityscope.report.repair.page import as_html
from parityscope.report.repair.text import as_text
from parityscope.report.repair.view import succeeded

__all__ = ["FORMS", "as_html", "as_text", "document", "render", "succeeded"]

FORMS = Forms(title="a repair", as_text=as_text, as_html=as_html)
render = FORMS.render
