"""`python -m parityscope` is `parityscope`."""

from __future__ import annotations

from parityscope.cli import main

main()
