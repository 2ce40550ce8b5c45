"""A matrix of models and targets -> text | json | html | markdown, what changed since the last run first. All of it is pure."""

from __future__ import annotations

from pathlib import Path

from parityscope.report.forms import Forms, Page
from parityscope.report.matrix.document import matrix_document
from parityscope.report.matrix.text import matrix_as_markdown, print_matrix
from parityscope.report.matrix.view import view_matrix

__all__ = ["FORMS", "matrix_document"]

FORMS = Forms(
    title="a matrix",
    view=view_matrix,
    show=print_matrix,
    page=Page(template=Path(__file__).with_name("matrix.html.j2")),
    others={"markdown": matrix_as_markdown},
)
