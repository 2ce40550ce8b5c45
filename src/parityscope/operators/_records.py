"""What is known of one operator: the record, and the words it is written in."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from parityscope.light_dataclasses import KW_ONLY, dataclass, field

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal[
    "activation", "arithmetic", "attention", "bits", "choice", "classical", "comparison", "constant", "control flow",
    "conversion", "embedding", "function", "logic", "movement", "normalization", "other", "pooling", "product",
    "quantization", "random", "recurrent", "reduction", "resampling", "rounding", "selection", "sequence", "shape", "softmax",
    "spectrum", "text", "training",
]  # fmt: skip
# How an operator rounds in FP32: not at all; once; within `ulps`; by adding up, for which formulas are needed. "" says that
# nobody has looked.
Exactness = Literal["", "exact", "correct", "faithful", "sums"]
# How an operator that computes nothing places the elements of its first input.
Moves = Literal["", "in order", "permuted", "repeated", "picked"]
Trait = Literal[
    "affine",  # with a constant it scales or shifts the other input
    "bounds",  # a NaN that it reads may become a bound: C's fmax and fmin
    "chooses elements",  # puts elements of a constant beside or in the place of others
    "commutes",  # in its first two inputs
    "counts",  # gives as many rows as its values say, whatever the shapes that it reads
    "computes nothing",  # copies, converts, or gives what is known before the first inference
    "gives zeros",  # exactly, on ordinary data; a softmax underflows to them in 16 bits
    "guards",  # may keep what stands behind it from zero by a constant: x + epsilon, max(x, epsilon)
    "ignores scale",  # gives the same for a positive multiple of its input
    "keeps elements",  # gives elements of its inputs, their negatives or zeros: rounded numbers stay what they are
    "largest",  # gives the largest of many
    "loses NaN",  # may give a number although one of many is NaN
    "passes on",  # gives its first input, converted at most
    "pointwise",  # computes each element from one element of each input
    "products inside",  # multiplies and adds up what cannot be reached from outside
    "quantized",  # computes with quantized numbers
    "saturates",  # gives the same for all that is large enough
    "smallest",
    "softmax inside",  # adds up exponentials, in which a hugely negative number vanishes
    "sorts",
    "steps",  # its derivative is zero wherever it has one
    "whitens",  # subtracts a mean or not, divides by a deviation with `epsilon` in it, and scales anew
]
# Places of inputs; None: every one.
Positions = tuple[int, ...] | None
# Roles of inputs that say how and not what to compute: engines keep them in FP32 or read them on the host.
_STEERING = frozenset(
    "axes|axis|branch|continuation|count|depth|diagonal|ends|indices|input scale|input zero point|largest number of boxes|"
    "length|limit|output scale|output zero point|overlap threshold|padding|quantization scale|ratio|region|repeats|"
    "resize scales|score threshold|shape|size|sizes|start|starts|step|steps|training mode|trip count|weight scale|"
    "weight zero point|zero point".split("|")
)
# Those of them that may make the results larger without end.
_EXTENTS = frozenset("count|depth|length|limit|padding|repeats|resize scales|shape|size|sizes|trip count".split("|"))


@dataclass(frozen=True, slots=True)
class Operator:
    """What ONNX, or who documents it, says of an operator, as far as anything here asks."""

    name: str
    kind: Kind
    _: KW_ONLY
    #: "com.microsoft"; "" is ONNX's own
    domain: str = ""
    #: what each input is called, as far as anything asks; the words are told to people
    inputs: tuple[str, ...] = ()
    #: how it places elements that it does not change
    moves: Moves = ""
    #: attributes with which it brings in a number of its own, or computes
    computes_with: tuple[str, ...] = ()
    #: inputs that others are multiplied with or divided by; of a product those that tensor cores take
    multiplies: Positions = ()
    #: inputs that ONNX Runtime packs where they are constants, and otherwise decodes whole to float32 in every run
    packs: tuple[int, ...] = ()
    #: the axis of its second input that output channels lie on (Gemm's without transB)
    weight_axis: int | None = None
    #: inputs that, all multiplied by one power of two, multiply the first result by it
    scales_with: Positions = ()
    exactness: Exactness = ""
    #: bound of the error in FP32, in units in the last place, where it is none of correct rounding's and no sum's formula
    ulps: float | None = None
    #: the input of which a zero makes an infinity or NaN
    pole: int | None = None
    traits: tuple[Trait, ...] = ()
    #: the operator that it computes in another form, as a runtime's optimizer writes it
    base: str = ""
    gives: Literal["tensor", "sequence", "optional", "map"] = "tensor"
    #: the attribute that holds the element type of the first output
    typed_by: str = ""
    #: of what no schema here tells: the input whose element type the results have
    typed_like: int | None = None
    #: of its body's inputs and its own the first that hold data, and the first such of the body's outputs
    carries: tuple[int, int] | None = None
    #: of a recurrent layer: a letter for each gate, in the order of its weights, and the activations that it has when none is
    #: named
    gates: str = ""
    activations: tuple[str, ...] = ()
    #: float attributes and what their absence means, where that is another number in a narrower format
    defaults: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def positions(self, suffix: str) -> tuple[int, ...]:
        """The inputs whose role ends so ("zero point")."""
        return tuple(index for index, role in enumerate(self.inputs) if role.endswith(suffix))

    @property
    def steers(self) -> tuple[int, ...]:
        """The inputs that say how and not what to compute: never rounded, and where shape arithmetic may end."""
        return tuple(index for index, role in enumerate(self.inputs) if role in _STEERING)

    @property
    def enlarges(self) -> tuple[int, ...]:
        """The inputs that say how large the results are."""
        return tuple(index for index, role in enumerate(self.inputs) if role in _EXTENTS)
