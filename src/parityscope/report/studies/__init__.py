"""Pages of a folder of studies: the list, the trends, one trend, an upload, and a refusal. All of it is pure.

Each function gives a page and the content policy that it is sent with.
"""

from __future__ import annotations

from parityscope.report.studies.pages import (
    list_page,
    refusal_page,
    series_page,
    study_page,
    trends_page,
    upload_page,
    with_way_back,
)

__all__ = [
    "list_page",
    "refusal_page",
    "series_page",
    "study_page",
    "trends_page",
    "upload_page",
    "with_way_back",
]
