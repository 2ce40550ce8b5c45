"""What TensorRT makes of a file -> text | json | html: the page of `parityscope network`. All of it is pure."""

from __future__ import annotations

from parityscope.report.forms import FORMATS, Forms
from parityscope.report.network.document import document
from parityscope.report.network.page import as_html
from parityscope.report.network.text import as_text

__all__ = ["FORMATS", "FORMS", "as_html", "as_text", "document"]

FORMS = Forms(title="network", as_text=as_text, as_html=as_html)
