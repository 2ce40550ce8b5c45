"""The outcome of a repair -> text | json | html.

`repair_document` makes the strict-JSON mapping that everything else is drawn from; `view` words it. All of it is pure.
"""

from __future__ import annotations

from pathlib import Path

from parityscope.report.forms import Forms, Page
from parityscope.report.repair.document import repair_document
from parityscope.report.repair.draw import draw_repair
from parityscope.report.repair.text import print_repair
from parityscope.report.repair.view import has_succeeded, view_repair

__all__ = ["FORMS", "has_succeeded", "render", "repair_document"]

FORMS = Forms(
    title="a repair",
    view=view_repair,
    show=print_repair,
    page=Page(
        template=Path(__file__).with_name("repair.html.j2"),
        styles=(Path(__file__).with_name("repair.css"),),
        draw=draw_repair,
    ),
)
render = FORMS.render
