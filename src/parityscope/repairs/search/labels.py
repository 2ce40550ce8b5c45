"""What `low` means: a format for whole nodes, FP8 E4M3 for the operands of products, or both.

"f16" and "bf16" are formats that nodes compute and store in. "f8e4m3" is one for what products read: a product in FP8
gives what it gives in the type around it. With both ("f8e4m3,f16") every node has one of three labels, FP32, FP16, and
FP16 with operands in FP8, and products may be FP32 with operands in FP8 as well.

A search decides yes or no. So a product that may be in FP8 decides twice: as itself, whether it is in the storage
format, and as `<name> in FP8`, whether its operands are rounded. Errors of the two add in squares as those of two nodes
do, and in the cost model the second decision is worth the difference between the two times of the product, so that no
term binds the two together, and the cut over all labels at once stays the exact one of `cut`.

With "tf32" among them ("f16,tf32") products that stay in FP32 are computed as runtimes do that allow TF32: with operands
rounded to it. That is a setting of the whole runtime and no choice of the search.

"f16,bf16" searches with FP16 first, and then offers BF16 to all nodes (`second`): three labels, of which the
moves are exact.
"""

from __future__ import annotations

from parityscope.arithmetic import format_named
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass

LOWS = ("f16", "bf16", "f8e4m3", "f16,bf16", "f8e4m3,f16", "f8e4m3,bf16")
_EIGHT, _NOTHING = "f8e4m3", "f32"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatLabels:
    """`storage`: the format that nodes may be in, "f32" for none. `eighths`: whether products may be in FP8.

    `second`: whether nodes that cannot be in FP16 may be in BF16. `full`: what products in FP32 take their operands in,
    "f32" or "tf32".
    """

    storage: str
    eighths: bool
    second: bool = False
    full: str = _NOTHING

    @property
    def title(self) -> str:
        """What people call it: FP16; FP8 E4M3; FP16 with products in FP8 E4M3."""
        if not self.eighths:
            return self._halves
        eight = format_named(_EIGHT).title
        alone = self.storage == _NOTHING and self.full == _NOTHING
        return eight if alone else f"{self._halves} with products in {eight}"

    @property
    def _halves(self) -> str:
        title = format_named(self.storage).title
        title = f"{title} and {format_named('bf16').title}" if self.second else title
        return title if self.full == _NOTHING else f"{title} beside {format_named(self.full).title}"


def labels_of(low: str) -> FormatLabels:
    """The labels of `low`: names of formats, in any order, with commas between; FP32 may be among them.

    Raises:
        ParityError: one is unknown, or stands there twice.
    """
    parts = [part.strip() for part in low.split(",")]
    full = "tf32" if "tf32" in parts else _NOTHING
    asked = [part for part in parts if part not in {"", _NOTHING, "tf32"}]
    storage = [part for part in asked if part in {"f16", "bf16"}]
    others = [part for part in asked if part not in {"f16", "bf16", _EIGHT}]
    if others or not asked or len(asked) != len(set(asked)):
        raise ParityError(
            f"{low!r} cannot be searched: there are no operators that compute in it",
            fix=f"use --low {' or --low '.join(LOWS)}",
        )
    both = len(storage) > 1
    first = "f16" if both else storage[0] if storage else _NOTHING
    return FormatLabels(storage=first, eighths=_EIGHT in asked, second=both, full=full)
