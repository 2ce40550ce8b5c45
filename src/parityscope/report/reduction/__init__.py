"""A reduced finding -> a document, text for a terminal, a program that shows it, and a report for the runtime's authors.

`reduction_document` makes the strict-JSON mapping that everything else is drawn from. All of it is pure.
"""

from __future__ import annotations

from parityscope.report.forms import PLAIN, Forms
from parityscope.report.reduction.document import reduction_document
from parityscope.report.reduction.issue import as_issue
from parityscope.report.reduction.program import as_program
from parityscope.report.reduction.text import print_reduction

__all__ = ["FORMS", "as_issue", "as_program", "reduction_document"]

FORMS = Forms(title="reduce", view=dict, show=print_reduction, page=PLAIN)
