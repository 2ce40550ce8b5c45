"""What explains the error that a layer introduced: a named arithmetic, another function, or nothing.

Of a region (the nodes between observable tensors), with the candidate's own inputs c_in and output c:

1. f(c_in) is run, and so is f_h(c_in) for every hypothesis h of `parityscope.hypotheses.arithmetic`;
2. the error's *vector* c - f(c_in) is regressed on what h predicts, f_h(c_in) - f(c_in) (`regression`);
3. what is left is held against the FP32 noise of every element (`floor`);
4. h is accepted where the slope is one, the share above 0.99 (0.9 behind a rounding of the output) and no channel above
   the floor; hypotheses that predict the same are reported together, with what separates them (`evidence`);
5. where no arithmetic is, other functions are tried on top of the likeliest ones; where none is accepted either, the
   error is unexplained: a bug.
"""

from __future__ import annotations

from parityscope.explanation.explaining import explain_region
from parityscope.explanation.records import Explained, Explanation, ExplanationOptions, explanation_as_json
from parityscope.explanation.suspects import explain_suspects, region_model

__all__ = [
    "Explained",
    "Explanation",
    "ExplanationOptions",
    "explain_region",
    "explain_suspects",
    "explanation_as_json",
    "region_model",
]
