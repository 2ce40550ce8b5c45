"""A verification -> text | json | html: what `parityscope verify` shows.

`verification_document` makes the strict-JSON mapping that everything else is drawn from (schema "parityscope/1", kind
"verification"); `view` words it. All of it is pure.
"""

from __future__ import annotations

from pathlib import Path

from parityscope.report.forms import Forms, Page
from parityscope.report.verification.document import KIND, verification_document
from parityscope.report.verification.draw import draw_verification
from parityscope.report.verification.succeeding import has_succeeded
from parityscope.report.verification.text import print_verification
from parityscope.report.verification.view import view_verification

__all__ = ["FORMS", "KIND", "has_succeeded", "render", "verification_document"]

FORMS = Forms(
    title="a verification",
    view=view_verification,
    show=print_verification,
    page=Page(
        template=Path(__file__).with_name("page.html.j2"),
        styles=(Path(__file__).with_name("page.css"),),
        draw=draw_verification,
    ),
)
render = FORMS.render
