"""What a check may run, one experiment a call: inside the network on one sample (`Lab`), or both sides whole (`Bench`)."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping, Sequence

    import numpy as np
    import onnx_ir as ir

    from parityscope.evaluation.partly import PartlyRounded
    from parityscope.hypotheses.from_other_graph import Compared

    # Inputs by name -> outputs by the reference's names.
    Run = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """What a check may run; each call is one experiment on one sample of the reference's graph.

    `reference` and `candidate` give a tensor's two values. `replay(tensor, constants)` gives f(c_in): what the
    reference arithmetic makes of `tensor` from the candidate's own inputs, with the named constants (initializers
    or outputs of Constant nodes) replaced first; with none it is the plain severed replay. `forward(tensor, constants)`
    is the reference from its own inputs with only those constants replaced.
    """

    reference: Callable[[str], np.ndarray]
    candidate: Callable[[str], np.ndarray]
    replay: Callable[[str, Mapping[str, np.ndarray]], np.ndarray]
    forward: Callable[[str, Mapping[str, np.ndarray]], np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a check may run where only outputs can be had: the reference on changed inputs, one run each.

    `outputs(inputs)` gives the reference's outputs on the given inputs; it raises ParityError where the model refuses
    them. `samples` are the places of the first few samples in the data set, in their order; `inputs(i)`, `reference(i)` and
    `candidate(i)` are the input and both sides' outputs of sample i, all by the reference's names. The candidate may lack
    an output or give it in another shape. `before` is the sample before the first of them, if any: `candidate` has it too.

    `answers(inputs)` gives the candidate's outputs on other inputs; None where it is a recording. `peers` are other ways to
    run the model that ought to agree with the reference, and `switched` the candidate with one switch thrown, by target:
    each gives outputs on any inputs. All raise ParityError where a side cannot run. `given(i)` are the outputs that the
    verdict was made with where those are a recording's, which `reference(i)` are not; None otherwise.

    `origin` is the network before its conversion, by target, where a side is one: as it was given (in FP32).
    `converted` is then the ONNX model as it stands, run by ONNX Runtime with its optimizer off.

    `honest` gives what an honest deployment of the declared arithmetic would, on any inputs, `simulated` what simulations of
    formats would, by format. `partly()` computes some products of the network in one, and all else as it is.

    `kept` holds what earlier runs on changed inputs measured, by what each was: where it outlives the process, a search that
    was cut off goes on where it was.

    `graphs()` compares the candidate's own file with the reference's, once; None where it has none. `executed()` compares the
    graph that the candidate's runtime makes of the reference's file with that file's; None where it has another, or tells none.

    `converted_from()` compares the graph of a reference that is a network before its conversion with the file's.

    `rewritten[side](name, edit)` runs a copy of the file that the "reference" or the "candidate" runs, which `edit` changes in
    place; it gives None where `edit` says that there was nothing to change. A side that is given no file is not in it.

    `watched(i, tensors)` is `candidate(i)` while it also has to give back the intermediate tensors named, by the reference's
    names; None where nothing can be asked of it.
    """

    outputs: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]
    samples: tuple[int, ...]
    inputs: Callable[[int], Mapping[str, np.ndarray]]
    reference: Callable[[int], Mapping[str, np.ndarray]]
    candidate: Callable[[int], Mapping[str, np.ndarray]]
    before: int | None = None
    answers: Run | None = None
    peers: Mapping[str, Run] = field(default_factory=lambda: MappingProxyType({}))
    switched: Mapping[str, Run] = field(default_factory=lambda: MappingProxyType({}))
    given: Callable[[int], Mapping[str, np.ndarray]] | None = None
    origin: Mapping[str, Run] = field(default_factory=lambda: MappingProxyType({}))
    converted: Run | None = None
    honest: Run | None = None
    simulated: Mapping[str, Run] = field(default_factory=lambda: MappingProxyType({}))
    rewritten: Mapping[str, Callable[[str, Callable[[ir.Model], bool]], Run | None]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    watched: Callable[[int, Sequence[str]], Mapping[str, np.ndarray]] | None = None
    kept: MutableMapping[str, tuple[float, float, float] | None] = field(default_factory=dict)
    graphs: Callable[[], Compared] | None = None
    converted_from: Callable[[], Compared] | None = None
    executed: Callable[[], Compared] | None = None
    partly: Callable[[], PartlyRounded] | None = None
