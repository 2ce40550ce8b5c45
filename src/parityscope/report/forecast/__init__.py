"""A forecast -> text | json | html: the page of `parityscope predict`.

`forecast_document` makes the strict-JSON mapping that everything else is drawn from; `view` words it. All of it is pure.
"""

from __future__ import annotations

from parityscope.report.forecast.document import forecast_document
from parityscope.report.forecast.page import forecast_as_html
from parityscope.report.forecast.text import forecast_as_text
from parityscope.report.forms import Forms

__all__ = ["FORMS", "forecast_as_html", "forecast_as_text", "forecast_document", "render"]

FORMS = Forms(title="a forecast", as_text=forecast_as_text, as_html=forecast_as_html)
render = FORMS.render
