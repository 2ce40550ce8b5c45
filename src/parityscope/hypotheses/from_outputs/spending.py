"""What a search has spent: estimated seconds of work, and no clock's.

A clock would make the answer depend on how quick and how busy the machine is. Every evaluation of a step, every derivative and
every edit that is written down is charged what it takes on one core of a server (the prices were measured on one), so that the
same search is made everywhere: a slow machine takes longer for it.
"""

from __future__ import annotations

import math

from parityscope.light_dataclasses import dataclass

# Estimated seconds of one core of a server.
APPLY_S, ELEMENT_S = 1e-4, 3e-9  # applying an edit, and one element of what it gives
MADE_S = 5e-5  # writing down an edit
LOOKED_UP_S = 2e-5  # an elementwise function where the adjoints are gathered by value
DERIVATIVE_S = 2e-2  # writing down and opening the derivative of a step
SWEPT = 1.0  # runs of a step that one direction of a sweep costs
PRODUCT_S = 1e-9  # one element of a change times one direction
SITE_S = 1.5e-3  # making a site ready
GATHER_S = 4e-8  # one element whose adjoints are gathered by value
ROWS_S = 1.2e-7  # two rows of an output that may belong together: measured, with the assignment
RESPONSE_S = 3e-9  # one number of a response that is held against what is wanted


@dataclass(slots=True)
class WorkMeter:
    """Estimated seconds `spent` so far."""

    spent: float = 0.0

    def charge(self, seconds: float) -> None:
        """Adds what some work takes."""
        self.spent += seconds

    def share_of(self, until: float, part: float) -> float:
        """When a part of what is left until then will be spent."""
        return self.spent + part * max(0.0, until - self.spent) if part < 1 and math.isfinite(until) else until
