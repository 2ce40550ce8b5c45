"""A verification -> text | json | html: what `parityscope verify` shows.

`verification_document` makes the strict-JSON mapping that everything else is drawn from (schema "parityscope/1", kind
"verification"); `view` words it. All of it is pure.
"""

from __future__ import annotations

from parityscope.report.forms import Forms
from parityscope.report.verification.document import KIND, verification_document
from parityscope.report.verification.page import verification_as_html
from parityscope.report.verification.succeeding import has_succeeded
from parityscope.report.verification.text import verification_as_text

__all__ = [
    "FORMS",
    "KIND",
    "has_succeeded",
    "render",
    "verification_as_html",
    "verification_as_text",
    "verification_document",
]

FORMS = Forms(title="a verification", as_text=verification_as_text, as_html=verification_as_html)
render = FORMS.render
