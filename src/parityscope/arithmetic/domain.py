"""The domain of operators that ONNX does not have and a runtime has to be given, such as `parityscope::Round`.

In a module of its own, because a session asks for it without reading any graph.
"""

from __future__ import annotations

__all__ = ["DOMAIN"]

DOMAIN = "parityscope"
