"""A forecast -> text | json | html: the page of `parityscope predict`.

`document` makes the strict-JSON mapping that everything else is drawn from; `view` words it. All of it is pure.
"""

from __future__ import annotations

from parityscope.report.forecast.document import document
from parityscope.report.forecast.page import as_html
from parityscope.report.forecast.text import as_text
from parityscope.report.forms import Forms

__all__ = ["FORMS", "as_html", "as_text", "document", "render"]

FORMS = Forms(title="a forecast", as_text=as_text, as_html=as_html)
render = FORMS.render
