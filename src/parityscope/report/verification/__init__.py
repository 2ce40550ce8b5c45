"""A verification -> text | json | html: what `parityscope verify` shows.

`document` makes the strict-JSON mapping that everything else is drawn from (schema "parityscope/1", kind
"verification"); `view` words it. All of it is pure.
"""

from __future__ import annotations

from parityscope.report.forms import Forms
from parityscope.report.verification.document import KIND, document
from parityscope.report.verification.page import as_html
from parityscope.report.verification.succeeding import succeeded
from parityscope.report.verification.text import as_text

__all__ = ["FORMS", "KIND", "as_html", "as_text", "document", "render", "succeeded"]

FORMS = Forms(title="a verification", as_text=as_text, as_html=as_html)
render = FORMS.render
