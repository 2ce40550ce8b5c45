"""Searches stretches in a process of its own, as an edit may crash the runtime or never end.

The process is forked (`fork_server`: by this one, or by another beside threads of others), so that it finds everything imported;
its answer comes through a pipe. Both share one small page of a file where it notes which edit it is about to try. If it dies, or
an edit takes longer than `PATIENCE_S`, that is banned, counted, and the search begun again without it.
"""

from __future__ import annotations

import itertools
import mmap
import os
import pickle
import select
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.fork_server import contained_child
from parityscope.hypotheses.edits import form_of
from parityscope.light_dataclasses import dataclass, field, replace
from parityscope.memory import keep_freed_memory
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np

    from parityscope.forking import Forked
    from parityscope.hypotheses.edits import Behind, NodeAgain
    from parityscope.hypotheses.from_curves import FittedCurve
    from parityscope.hypotheses.from_outputs.searching import KnownOutputs
    from parityscope.hypotheses.from_outputs.telling import OutputsAnswer
    from parityscope.hypotheses.searching import EditPattern, Ranked
    from parityscope.hypotheses.stretch import ComputedStretch, StretchContext
    from parityscope.records import RuledOut

_PAGE = 4096
PATIENCE_S = 30.0  # of processor time for one edit; on quiet cores the slowest takes a tenth of a second. Chosen.
_STANDSTILL_S = (
    240.0  # of wall time for one that waits for what never comes; on a crowded machine others wait too. Chosen.
)
_CRASHED, _HUNG = "it ended the process that computed it", "it never ended"
_STARTS = 5  # of the worker for one task: each but the first was for an edit that ended it
_BLOCK = 1 << 20  # bytes that are read at once
_TURN_S = 0.1  # how often it is asked whether the search goes on
_TOLD, _NEARLY_ALL = 8, 0.9  # of the ranked; of the squared error. Chosen
_TOLD_AT_LEAST, _TOLD_NBYTES = 2, 256 << 20  # of them where what they predict is large; chosen
_MODULES = (  # what a search imports: a second, once for all
    "onnx.reference.ops",
    "onnxruntime",
    "scipy.optimize",
    "scipy.special",
    "parityscope.compiling",
    "parityscope.hypotheses.worker",
    "parityscope.hypotheses.arithmetic.edits",
    "parityscope.hypotheses.from_outputs.telling",
    "parityscope.hypotheses.searching",
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StretchTask:
    """A stretch to be searched: `arithmetic` is a hypothesis' name and the words of its variant, empty for FP32.

    `first` and `among` are as in `searching.search`.
    """

    context: StretchContext
    seconds: float
    arithmetic: tuple[str, str] = ("", "")
    first: tuple[EditPattern, ...] = ()
    among: frozenset[EditPattern] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EditCandidate:
    """What a search says of one edit, with what it predicts on the first sample.

    `step` is the site of what it changes, `output` that of the stretch. `node`, `reads`, `again`, `behind` (as in `StretchEdit`)
    and `constants` are what does the same in a copy of the model, where something does. `equal` are the words of others that
    give the same on every sample. `curve` is what is said, of a curve.
    """

    words: str
    kind: str
    bits: float
    share: float
    length: float
    step: str
    predicted: np.ndarray
    numbers: dict[str, float]
    output: str
    node: bytes
    reads: tuple[int | None, ...] | None
    again: tuple[NodeAgain, ...]
    behind: Behind
    constants: dict[str, np.ndarray]
    equal: frozenset[str] = frozenset()
    curve: FittedCurve | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StretchAnswer:
    """The best candidates, and how many edits were tried, failed or left for want of budget; `fatal` ended the worker, and how.

    `spent` are the estimated seconds that it took.
    `crashed` says of kinds of edits why what generates them could not go on, `ruled_out` what was tried of each kind.
    """

    candidates: tuple[EditCandidate, ...] = ()
    tried: int = 0
    failed: int = 0
    untried: int = 0
    spent: float = 0.0
    fatal: Mapping[str, str] = field(default_factory=dict)
    crashed: Mapping[str, str] = field(default_factory=dict)
    ruled_out: tuple[RuledOut, ...] = ()
    problem: str = ""


@dataclass(slots=True, kw_only=True)
class Worker:
    """Searches, each in a process of its own; edits that ended one are never tried again."""

    _banned: set[str] = field(default_factory=set)

    def search(self, task: StretchTask) -> StretchAnswer:
        """What searching the task gives; edits that end the worker are banned and counted."""
        answer, fatal, problem = self._ask_until_answered(lambda: task)
        return (
            replace(answer, fatal=fatal)
            if isinstance(answer, StretchAnswer)
            else StretchAnswer(fatal=fatal, problem=problem)
        )

    def search_outputs(self, outputs: KnownOutputs) -> OutputsAnswer:
        """What searching from outputs alone gives; as `search`."""
        from parityscope.hypotheses.from_outputs.telling import OutputsAnswer

        starts = itertools.count()
        answer, fatal, problem = self._ask_until_answered(lambda: replace(outputs, begun=next(starts)))
        return (
            replace(answer, fatal=fatal)
            if isinstance(answer, OutputsAnswer)
            else OutputsAnswer(fatal=fatal, problem=problem)
        )

    def _ask_until_answered(
        self, asked: Callable[[], StretchTask | KnownOutputs]
    ) -> tuple[object, dict[str, str], str]:
        """The answer to what is asked at each start, the edits that ended the worker and how, and why there is no answer."""
        fatal: dict[str, str] = {}
        _prepare_first()
        with tempfile.TemporaryFile() as shared:
            shared.truncate(_PAGE)
            with mmap.mmap(shared.fileno(), _PAGE) as note:
                for _ in range(_STARTS):
                    note[:_PAGE] = bytes(_PAGE)
                    task, banned = asked(), frozenset(self._banned)
                    child = contained_child(_send_answer, (task, banned), shared.fileno(), _MODULES)
                    answer, ended = _receive_answer(child, note)
                    if answer is not None:
                        return answer, fatal, ""
                    noted = note[:_PAGE].split(b"\0")[0].decode(errors="replace")
                    if not noted:
                        return None, fatal, "the search ended before it tried anything"
                    self._banned.add(form_of(noted))
                    fatal[noted] = ended
        return None, fatal, f"{len(fatal)} edits ended the search one after the other"


def skips_of_search(tensor: str, answer: StretchAnswer | OutputsAnswer) -> Iterator[Skip]:
    """What a search about a tensor had to leave out: kinds of edits that could not be generated, edits that ended it."""
    for kind, why in answer.crashed.items():
        yield Skip(
            what=f"generated hypotheses of {tensor}: {kind}",
            reason=f"what generates them failed: {why}",
            fix="this is a bug: report it with this line",
        )
    for words, ended in answer.fatal.items():
        yield Skip(what=f"hypothesis of {tensor}: {words}", reason=ended)


def _prepare_first() -> None:
    """Imports and reads what nearly every search needs, so that no fork does it again (half a second each)."""
    import onnx.reference.ops
    import scipy.optimize
    import scipy.special  # noqa: F401

    from parityscope.hypotheses.schemas import versions_of

    versions_of(onnx.NodeProto())


def _receive_answer(child: Forked, note: mmap.mmap) -> tuple[object, str]:
    """The worker's answer; None where it ended or went on with one edit for too long, and which of the two."""
    content, seen, since, spent = bytearray(), b"", time.monotonic(), 0.0
    try:
        while True:
            if not select.select([child.pipe], [], [], _TURN_S)[0]:
                now = note[:_PAGE]
                if now != seen:
                    seen, since, spent = now, time.monotonic(), _processor_seconds(child.number)
                elif now.strip(b"\0") and (
                    time.monotonic() - since > _STANDSTILL_S or _processor_seconds(child.number) - spent > PATIENCE_S
                ):
                    return None, _HUNG
            elif part := os.read(child.pipe, _BLOCK):
                content += part
            else:
                break
    finally:
        child.end()
    try:
        found: object = pickle.loads(content)  # noqa: S301 - from the other end of our own pipe
    except (EOFError, pickle.UnpicklingError):
        return None, _CRASHED
    return found, ""


def _processor_seconds(process: int) -> float:
    """What a process has computed so far; 0 where the system does not say (proc_pid_stat(5), fields 14 and 15)."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _send_answer(task: StretchTask | KnownOutputs, banned: frozenset[str], shared: int) -> bytes:
    """What the worker process does: searches, and packs what it found."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # what a runtime prints is no answer
        os.dup2(nowhere, stream)
    keep_freed_memory()
    with mmap.mmap(shared, _PAGE) as note:
        return pickle.dumps(_answer_task(task, banned, note), protocol=pickle.HIGHEST_PROTOCOL)


def _answer_task(
    task: StretchTask | KnownOutputs, banned: frozenset[str], note: mmap.mmap
) -> StretchAnswer | OutputsAnswer:
    def trying(words: str) -> None:
        content = words.encode()[: _PAGE - 1]
        note[: len(content) + 1] = content + b"\0"

    return (
        _search_stretch(task, banned, trying)
        if isinstance(task, StretchTask)
        else _search_from_outputs(task, banned, trying)
    )


def _search_from_outputs(outputs: KnownOutputs, banned: frozenset[str], trying: Callable[[str], None]) -> OutputsAnswer:
    from parityscope.hypotheses.from_outputs.searching import search_outputs
    from parityscope.hypotheses.from_outputs.telling import OutputsAnswer, told_of

    try:
        return told_of(search_outputs(outputs, trying, banned))
    except ParityError as error:
        return OutputsAnswer(problem=error.problem)
    except (MemoryError, KeyError, ValueError, IndexError, TypeError, ArithmeticError) as error:
        return OutputsAnswer(problem=f"{type(error).__name__}: {error}")


def _predict_first(stretch: ComputedStretch, one: Ranked) -> np.ndarray:
    """The result on the first sample, before it is rounded."""
    import numpy as np

    with np.errstate(all="ignore"):
        return np.asarray(stretch.run(0, one.edit))


def _choose_told(ranked: Sequence[Ranked], nbytes: int) -> list[Ranked]:
    """The best, and the best of each other kind that explains nearly all: variants of one would crowd out what says less.

    Fewer where what each predicts takes many bytes.
    """
    most = max(_TOLD_AT_LEAST, min(_TOLD, _TOLD_NBYTES // max(nbytes, 1)))
    told = list(ranked[:most])
    kinds = {one.kind for one in told}
    for one in ranked[most:] if most == _TOLD else ():
        if one.kind not in kinds and one.share >= _NEARLY_ALL:
            kinds.add(one.kind)
            told.append(one)
    return told


def _equal_edits(stretch: ComputedStretch, told: Sequence[Ranked]) -> list[list[int]]:
    """By edit, the places of others that give the same on every sample."""
    from parityscope.hypotheses.measures import are_equal

    given = [[stretch.predict_sample(one.edit, sample) for sample in range(len(stretch.base))] for one in told]

    def same(one: int, other: int) -> bool:
        pairs = zip(given[one], given[other], strict=True)
        return one != other and all(a is not None and b is not None and are_equal(a, b) for a, b in pairs)

    return [[other for other in range(len(told)) if same(one, other)] for one in range(len(told))]


def _search_stretch(task: StretchTask, banned: frozenset[str], trying: Callable[[str], None]) -> StretchAnswer:
    from parityscope.hypotheses.arithmetic.edits import variant_of
    from parityscope.hypotheses.searching import search_large
    from parityscope.hypotheses.stretch import ComputedStretch
    from parityscope.hypotheses.written import write_edit

    try:
        trying("the model itself")
        stretch = ComputedStretch(context=task.context, arithmetic=variant_of(task.context, *task.arithmetic))
        edits = search_large(stretch, task.seconds, trying=trying, banned=banned, first=task.first, among=task.among)
    except ParityError as error:
        return StretchAnswer(problem=error.problem)
    except (MemoryError, KeyError, ValueError, IndexError, TypeError) as error:
        return StretchAnswer(problem=f"{type(error).__name__}: {error}")
    told = _choose_told(edits.ranked, stretch.base[0].nbytes)
    equal = _equal_edits(stretch, told)
    found = tuple(
        EditCandidate(
            words=one.edit.words,
            kind=one.kind,
            bits=one.edit.bits,
            share=one.share,
            length=one.length,
            step=stretch.steps[one.edit.at].key,
            predicted=_predict_first(stretch, one),
            numbers=dict(one.edit.numbers),
            output=task.context.output,
            node=one.edit.written_node,
            reads=one.edit.reads,
            again=write_edit(stretch, one.edit),
            behind=one.edit.behind,
            constants=stretch.changed_constants(one.edit),
            curve=one.edit.curve,
            equal=frozenset(told[other].edit.words for other in equal[place]),
        )
        for place, one in enumerate(told)
    )
    return StretchAnswer(
        candidates=found,
        tried=stretch.tried,
        failed=stretch.failed,
        untried=edits.untried,
        spent=edits.spent,
        crashed=stretch.crashed,
        ruled_out=edits.ruled_out,
    )
