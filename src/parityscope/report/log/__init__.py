"""What logs say -> text | json | html: the page of `parityscope log`. All of it is pure."""

from __future__ import annotations

from pathlib import Path

from parityscope.report.forms import Forms, Page
from parityscope.report.log.document import log_document
from parityscope.report.log.text import print_logs
from parityscope.report.log.view import view_logs

__all__ = ["FORMS", "log_document"]

FORMS = Forms(title="log", view=view_logs, show=print_logs, page=Page(template=Path(__file__).with_name("log.html.j2")))
