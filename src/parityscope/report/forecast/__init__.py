"""A forecast -> text | json | html: the page of `parityscope predict`.

`forecast_document` makes the strict-JSON mapping that everything else is drawn from; `view` words it. All of it is pure.
"""

from __future__ import annotations

from parityscope.report._page import TEMPLATES
from parityscope.report.forecast.document import forecast_document
from parityscope.report.forecast.draw import draw_forecast
from parityscope.report.forecast.text import print_forecast
from parityscope.report.forecast.view import view_forecast
from parityscope.report.forms import Forms, Page

__all__ = ["FORMS", "forecast_document", "render"]

FORMS = Forms(
    title="a forecast",
    view=view_forecast,
    show=print_forecast,
    page=Page(template=TEMPLATES / "forecast.html.j2", styles=(TEMPLATES / "forecast.css",), draw=draw_forecast),
)
render = FORMS.render
