"""What lies behind a place of the network as one session: a trial goes step by step to the next place, and runs the rest at once.

Of a network of small tensors a step costs more to call (0.1 to 0.2 ms) than to compute. Sessions share the weights. Each is
opened when a trial first needs it, and held against the reference's own outputs.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

import numpy as np

from parityscope.errors import ParityError
from parityscope.evaluation.kernels import SessionKernel
from parityscope.evaluation.worlds import World
from parityscope.evaluation.writing import Held, OutsideValue, write_stretch
from parityscope.light_dataclasses import dataclass, field
from parityscope.operators import of_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from parityscope.evaluation.program import Program, ProgramStep
    from parityscope.hypotheses.from_outputs.spending import WorkMeter

_APART = 16  # steps between two places, at least; chosen: half of them are gone through one by one
_PLACES = 24  # at most; chosen: a session takes about as long to open as its steps take to go through
_SAME = 1e-5  # relative L2 distance from the reference's outputs; chosen: the same kernels give the same but for their blocking
_COPIED = 256 << 20  # bytes of weights that all sessions together may hold once more, the shortest first; chosen
_OPENING_S = 2e-4  # a step, for writing and opening a session: measured
_RANDOM = of_kind("random")


@dataclass(slots=True, kw_only=True, eq=False)
class Suffix:
    """The live steps from one on as one session, which gives the `outputs` that they lead to.

    What chance gives is taken from the reference. `seconds` is what a run is estimated to take, `copied` whether it may keep
    weights of its own, in the order in which products read them.
    """

    program: Program
    steps: Sequence[ProgramStep]
    seconds: float
    copied: bool
    outputs: tuple[str, ...] = field(init=False)
    _kernel: SessionKernel | None = field(default=None, init=False)
    _read: dict[str, str] = field(default_factory=dict, init=False)
    refused: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Finds which outputs it gives."""
        given = {name for step in self.steps for name in step.outputs}
        self.outputs = tuple(name for name in self.program.outputs if name in given)

    @property
    def start(self) -> int:
        """The index of its first step."""
        return self.steps[0].index

    def opened(self, take: Callable[[str], np.ndarray | None], meter: WorkMeter) -> bool:
        """Whether there is a session, which gives of the reference's tensors (by `take`) the reference's outputs."""
        if self._kernel is None and not self.refused:
            meter.charge(_OPENING_S * len(self.steps) + self.seconds)
            self._kernel = self._open(take)
            self.refused = self._kernel is None
        return not self.refused

    def _open(self, take: Callable[[str], np.ndarray | None]) -> SessionKernel | None:
        world = World(name="plain", program=self.program)
        written = write_stretch(world, self.program, self.steps, self.outputs, frozenset())
        if written is None:
            return None
        held = {name: what.array for name, what in written.fed.items() if isinstance(what, Held)}
        self._read = {name: what.site for name, what in written.fed.items() if isinstance(what, OutsideValue)}
        known = {name: take(site) for name, site in self._read.items()}
        try:
            kernel = SessionKernel(written.graph, known, held, self.program, threads=1, copied=self.copied)
            results = kernel.run(known)
        except (MemoryError, KeyboardInterrupt):
            raise
        except Exception:  # noqa: BLE001 - the runtime's own types are children of Exception, every one
            return None
        pairs = zip(self.outputs, results, strict=True)
        return kernel if all(_are_near(take(name), result) for name, result in pairs) else None

    def respond(
        self, changed: Mapping[str, np.ndarray], take: Callable[[str], np.ndarray | None]
    ) -> dict[str, np.ndarray] | None:
        """Its outputs where some tensors are not what `take` gives; None where they are not even of its type and rank.

        Raises:
            ParityError: the runtime refuses a step.
        """
        if not any(site in changed for site in self._read.values()):
            return {}
        values = {name: changed[site] if site in changed else take(site) for name, site in self._read.items()}
        if self._kernel is None or not all(
            _is_alike(take(site), changed[site]) for site in self._read.values() if site in changed
        ):
            return None
        try:
            return dict(zip(self.outputs, self._kernel.run(values), strict=True))
        except (MemoryError, KeyboardInterrupt):
            raise
        except Exception as error:
            raise ParityError(" ".join(str(error).split())) from error


class Suffixes:
    """The places of a network from which on it is run at once."""

    def __init__(self, program: Program, live: Sequence[ProgramStep], seconds: Mapping[int, float]) -> None:
        """`live` are the steps that depend on what is fed, in order; `seconds` what each takes in a session, by index."""
        run = [step for step in live if step.op_type not in _RANDOM and not step.has_random]
        apart = max(_APART, -(-len(run) // _PLACES))
        self._suffixes: list[Suffix] = []
        left = _COPIED
        for place in reversed(range(apart, len(run) - 1, apart)):
            steps = run[place:]
            left -= _weight_bytes(program, steps)
            taken = sum(seconds[step.index] for step in steps)
            self._suffixes.insert(0, Suffix(program=program, steps=steps, seconds=taken, copied=left >= 0))
        self._starts = [one.start for one in self._suffixes]

    def behind(self, index: int) -> Suffix | None:
        """The first that begins behind a step."""
        place = bisect.bisect_right(self._starts, index)
        return self._suffixes[place] if place < len(self._suffixes) else None


def _weight_bytes(program: Program, steps: Sequence[ProgramStep]) -> int:
    names = {name for step in steps for name in step.reads}
    return sum(program.constants[name].nbytes for name in names if name in program.constants)


def _is_alike(known: np.ndarray | None, other: np.ndarray) -> bool:
    return known is not None and known.dtype == other.dtype and known.ndim == other.ndim


def _are_near(known: np.ndarray | None, other: np.ndarray) -> bool:
    if known is None or not _is_alike(known, other) or known.shape != other.shape:
        return False
    if known.dtype.kind not in "fc" or not (np.isfinite(known).all() and np.isfinite(other).all()):
        return np.array_equal(known, other, equal_nan=known.dtype.kind in "fc")
    apart = np.linalg.norm(np.asarray(other - known, np.float64))
    return bool(apart <= _SAME * np.linalg.norm(np.asarray(known, np.float64)))
