"""What logs say -> text | json | html: the page of `parityscope log`. All of it is pure."""

from __future__ import annotations

from parityscope.report.forms import FORMATS, Forms
from parityscope.report.log.document import document
from parityscope.report.log.page import as_html
from parityscope.report.log.text import as_text

__all__ = ["FORMATS", "FORMS", "as_html", "as_text", "document"]

FORMS = Forms(title="log", as_text=as_text, as_html=as_html)
