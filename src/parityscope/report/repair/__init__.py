"""The outcome of a repair -> text | json | html.

`repair_document` makes the strict-JSON mapping that everything else is drawn from; `view` words it. All of it is pure.
"""

from __future__ import annotations

from parityscope.report.forms import Forms
from parityscope.report.repair.document import repair_document
from parityscope.report.repair.page import repair_as_html
from parityscope.report.repair.text import repair_as_text
from parityscope.report.repair.view import has_succeeded

__all__ = ["FORMS", "has_succeeded", "render", "repair_as_html", "repair_as_text", "repair_document"]

FORMS = Forms(title="a repair", as_text=repair_as_text, as_html=repair_as_html)
render = FORMS.render
