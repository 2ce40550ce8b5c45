"""What logs say -> text | json | html: the page of `parityscope log`. All of it is pure."""

from __future__ import annotations

from parityscope.report.forms import FORMATS, Forms
from parityscope.report.log.document import log_document
from parityscope.report.log.page import log_as_html
from parityscope.report.log.text import log_as_text

__all__ = ["FORMATS", "FORMS", "log_as_html", "log_as_text", "log_document"]

FORMS = Forms(title="log", as_text=log_as_text, as_html=log_as_html)
