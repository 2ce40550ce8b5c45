"""Times as studies and their folders write them: in UTC, to the second."""

from __future__ import annotations

from datetime import UTC, datetime


def format_time(seconds: float | None = None) -> str:
    """A time since 1970 in seconds, or now: "2026-01-31T12:00:00Z".

    Raises:
        ValueError, OverflowError, OSError: it is in no year that a calendar has.
    """
    when = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def stamp_now() -> str:
    """Now, as it stands in the name of a folder: "20260131T120000Z"."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
