"""What TensorRT makes of a file -> text | json | html: the page of `parityscope network`. All of it is pure."""

from __future__ import annotations

from pathlib import Path

from parityscope.report.forms import Forms, Page
from parityscope.report.network.document import network_document
from parityscope.report.network.text import print_network
from parityscope.report.network.view import view_network

__all__ = ["FORMS", "network_document"]

FORMS = Forms(
    title="network",
    view=view_network,
    show=print_network,
    page=Page(template=Path(__file__).with_name("network.html.j2")),
)
