"""Number formats, rounding to them, and graphs that simulate them: the numerics core. Builds graphs, runs none.

* `formats`    : floating-point formats as data;
* `rounding`   : `round_to`, bit-exact rounding of numpy arrays to a format;
* `simulation` : `simulate`, a graph that computes as an engine of lower precision would; `detype`, the same for a
  model that holds float16 or bfloat16 values itself. Import these two from there: they need `onnx_ir`.
"""

from __future__ import annotations

from parityscope.arithmetic.formats import FORMATS, Format, format_named
from parityscope.arithmetic.rounding import round_to

__all__ = ["FORMATS", "Format", "format_named", "round_to"]
