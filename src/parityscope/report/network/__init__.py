"""What TensorRT makes of a file -> text | json | html: the page of `parityscope network`. All of it is pure."""

from __future__ import annotations

from parityscope.report.forms import FORMATS, Forms
from parityscope.report.network.document import network_document
from parityscope.report.network.page import network_as_html
from parityscope.report.network.text import network_as_text

__all__ = ["FORMATS", "FORMS", "network_as_html", "network_as_text", "network_document"]

FORMS = Forms(title="network", as_text=network_as_text, as_html=network_as_html)
