"""What a forecast holds: frozen records of plain numbers."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING

from parityscope.light_dataclasses import dataclass, field, replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.arithmetic import Format
    from parityscope.records import Site, Skip

# From this relative L2 error on an output is called lost: the error has a tenth of the output's energy (a signal-to-noise
# ratio of 10 dB). Chosen: rounding to 16 bits stays below a tenth of it on all trained models measured.
LOST_ERROR = 10.0**-0.5
_FEWEST = 16  # elements of a sample, chosen: of fewer a rounding may move most of it by chance, where they cancel
_LOST_SHARE = 0.5  # chosen: integers and booleans have no energy; they are lost when most of them differ

_NOTHING: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class MagnitudeRange:
    """The magnitudes of a tensor in the reference, over all samples.

    `largest` is the largest finite one and `smallest` the smallest that is not zero (0.0: there is none); `zeros` and
    `nonfinite` count elements.
    """

    site: Site
    elements: int
    largest: float
    smallest: float
    zeros: int
    nonfinite: int

    def to_overflow(self, number_format: Format) -> float:
        """Powers of two between the largest element and the format's largest number; negative beyond it."""
        return math.inf if self.largest == 0 else math.log2(number_format.largest) - math.log2(self.largest)

    def to_subnormal(self, number_format: Format) -> float:
        """Powers of two between the smallest element and the format's smallest normal number; negative below it."""
        return math.inf if self.smallest == 0 else math.log2(self.smallest) - math.log2(number_format.smallest_normal)

    def to_zero(self, number_format: Format) -> float:
        """Powers of two between the smallest element and what is rounded to zero (half the smallest subnormal)."""
        half = number_format.smallest_subnormal / 2
        return math.inf if self.smallest == 0 else math.log2(self.smallest) - math.log2(half)


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """The error of one tensor in one format, over all samples.

    Errors are relative L2 (`exact`: shares of differing elements, for integers and booleans); `rel_l2_finite` is over
    the elements that are finite on both sides. `nonfinite` counts elements that are so in the simulation alone.
    `introduced` is what the layer adds to what it inherits, both relative to the reference; None where not computed.
    `drawn` are the errors of an output of few numbers in further draws of the rounding (`drawing`).
    """

    site: Site
    elements: int
    rel_l2: float
    rel_l2_finite: float
    max_abs: float
    worst_index: tuple[int, ...] | None
    nonfinite: int
    is_output: bool = False
    exact: bool = False
    introduced: float | None = None
    inherited: float | None = None
    per_sample: tuple[float, ...] = ()
    drawn: tuple[float, ...] = ()

    @property
    def expected(self) -> float:
        """How large an error an engine is expected to show: the root mean square of all draws, where there are several."""
        draws = (self.rel_l2, *self.drawn)
        return math.sqrt(sum(error**2 for error in draws) / len(draws)) if self.drawn else self.rel_l2

    @property
    def lost(self) -> bool:
        """Whether nothing useful is left, of all samples or of one of them: new NaN or infinity, or an error of `LOST_ERROR`."""
        limit = _LOST_SHARE if self.exact else LOST_ERROR
        each = self.per_sample if self.elements >= _FEWEST * len(self.per_sample) else ()
        return self.nonfinite > 0 or not all(error < limit for error in (self.rel_l2, *each))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedParameter:
    """A constant with elements that a format cannot hold.

    `overflowed` elements are beyond the largest number, `flushed` ones become zero, `subnormal` ones lose digits;
    `value` is the element of the largest magnitude and `smallest` the smallest magnitude but zero. `nodes` read it, the first
    of them as its `role`.
    """

    name: str
    nodes: tuple[str, ...]
    op_type: str
    role: str
    elements: int
    overflowed: int
    flushed: int
    subnormal: int
    value: float
    smallest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What an output is lost to: `kind` is "parameter", "activation", "nonfinite" or "rounding"; `text` a sentence."""

    kind: str
    site: Site
    text: str
    parameter: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatForecast:
    """What one format does.

    `layers` come in graph order, empty when they were not measured. `rounding` holds what rounding alone costs the
    outputs, range left aside, where an output is lost. `statements` say the result in words.
    """

    precision: str
    outputs: tuple[Predicted, ...]
    layers: tuple[Predicted, ...]
    parameters: tuple[ChangedParameter, ...]
    rounding: Mapping[str, float] = field(default_factory=lambda: _NOTHING)
    cause: Cause | None = None
    statements: tuple[str, ...] = ()

    @property
    def lost(self) -> bool:
        """Whether an output is predicted to be lost."""
        return any(output.lost for output in self.outputs)

    def worst(self, count: int) -> tuple[Predicted, ...]:
        """The layers that introduce most, worst first; the first to do so of several that introduce NaN or infinity."""
        adding = [layer for layer in self.layers if layer.introduced]
        adding.sort(key=lambda layer: (-(layer.introduced or 0.0), layer.site.index))
        return tuple(adding[:count])

    def saying(self, statements: tuple[str, ...]) -> FormatForecast:
        """The same with these statements."""
        return replace(self, statements=statements)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What each format does to a model on some samples; `ranges` are the reference's, in graph order."""

    formats: tuple[FormatForecast, ...]
    ranges: tuple[MagnitudeRange, ...]
    samples: int
    profile: str
    statements: tuple[str, ...]
    skipped: tuple[Skip, ...]
    seconds: Mapping[str, float]

    @property
    def lost(self) -> bool:
        """Whether any format loses an output."""
        return any(each.lost for each in self.formats)
