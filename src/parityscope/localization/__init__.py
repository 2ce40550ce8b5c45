"""Comparison + replay -> Localization: where the error begins, and how much of the output error each place causes.

* `replay`    : what each tensor's region introduces and what it inherits, by the severed replay;
* `inject_errors` : what one suspect alone does to the outputs;
* `leading`   : which suspects are worth an explanation and experiments;
* `cuts`      : exact additive shares of the output error over cuts through the network;
* `narrowing` : the nodes that one fault may lie in, and the tensor that halves them;
* `sides`     : both traces with their pairing;
* `reading`   : what each tensor is computed from among those that are recorded;
* `spreading` : how far apart the runs of a recording are.
"""

from __future__ import annotations

from parityscope.localization.cuts import attribute_error
from parityscope.localization.injection import inject_errors
from parityscope.localization.keeping import reads_of
from parityscope.localization.leading import MOST, leading_suspects
from parityscope.localization.narrowing import narrow_regions
from parityscope.localization.replay import LocalizationOptions, localize
from parityscope.localization.sides import Sides

__all__ = [
    "MOST",
    "LocalizationOptions",
    "Sides",
    "attribute_error",
    "inject_errors",
    "leading_suspects",
    "localize",
    "narrow_regions",
    "reads_of",
]
