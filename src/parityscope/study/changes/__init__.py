"""What became better or worse between two studies, and what else is not the same: the one way that `diff` and `check` compare.

`noise` says which change of an error is more than another draw of the same rounding, `facts` which versions, settings and files
are not the same, `comparing` puts both together. What is compared are documents, as `study.json` holds them, or the part of one
that a baseline keeps (`baseline`).
"""

from __future__ import annotations
