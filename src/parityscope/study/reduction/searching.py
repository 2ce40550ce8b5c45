"""From a finding to the smallest piece that still shows it: first the region around its place, then what is left to leave out.

The place is known, so that the first cut is the region of the suspect itself. Only where that does not show the finding it is
grown, and only what was grown is taken apart again (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing
input", 2002). Samples, shapes and values follow as long as runs are left.

A study in a folder -> what it asked, asked again, and its finding reduced.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from parityscope.backends.recording import Progress, ignore_progress
from parityscope.errors import ParityError
from parityscope.records import Skip
from parityscope.study._experiment_again import check_digests
from parityscope.study._folder import as_written
from parityscope.study._opening import open_request
from parityscope.study._question import ask_again
from parityscope.study.difference import pair_tensors
from parityscope.study.reduction.making import open_source, run_side
from parityscope.study.reduction.pattern import pattern_of
from parityscope.study.reduction.records import Reduced
from parityscope.study.reduction.shrinking import fewer_samples, plainer_values, smaller_shapes
from parityscope.study.reduction.trying import PieceTrials, elements_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from parityscope.examination import Examination
    from parityscope.study.reduction.making import PieceSource
    from parityscope.study.reduction.records import Piece

_AGAIN = "parityscope reduce STUDY"
_SAMPLES = 3  # chosen: what one sample shows by chance three do not
_REPEATS = 3  # of a candidate whose answers vary
_VARIES = 1e-7  # relative L2 between two runs of one candidate: above it is no rounding of the last bit only
_HOPS = (1, 3, 7)
_LEAST = 5  # runs that are granted whatever the size


class GoneError(ParityError):
    """The finding does not show any more, on the whole model as it is now."""


def reduce_examination(
    known: Examination, document: Mapping[str, Any], folder: Path, *, runs: int = 0, repeats: int = 0
) -> Reduced:
    """The smallest piece of an examined model that shows the first finding of its study.

    At most about `runs` are made (0: two more than halving the graph blindly would take); what makes the proof smaller than its
    region ends there. `repeats` is how often a piece is examined before it is believed to show nothing (0: 3
    where the study saw the candidate's answers vary, else 1).

    Raises:
        GoneError: the whole model does not show the finding any more.
        ParityError: the study has no finding, or the reference cannot be run.
    """
    pattern = pattern_of(document)
    known = pair_tensors(known)
    source = open_source(known, _places_of(known, document), folder)
    whole = source.whole()
    trials = PieceTrials(
        pattern=pattern,
        request=known.request,
        folder=folder,
        progress=known.progress,
        limit=runs or max(_LEAST, math.ceil(math.log2(max(2, whole.nodes))) + 2),
        repeats=repeats or (_REPEATS if document["candidate"].get("spread", 0.0) > _VARIES else 1),
    )
    piece = _smallest_region(source, trials, whole)
    skipped = list(known.skipped)
    if source.recorded:
        skipped.append(
            Skip(
                what="fewer shapes, weights and values",
                reason="the candidate is a recording or a program of its own, and cannot be run on anything smaller",
                fix="give a candidate that runs here: parityscope reduce MODEL --candidate TARGET --inputs DATA",
            )
        )
    piece = fewer_samples(piece, trials)
    if not source.recorded:
        piece = smaller_shapes(piece, trials, folder)
        piece = plainer_values(piece, trials)
    return Reduced(
        pattern=pattern,
        piece=piece,
        document=trials.document,
        whole=whole.nodes,
        elements=(elements_of(whole), elements_of(piece)),
        attempts=tuple(trials.attempts),
        skipped=tuple(skipped),
        expected=run_side(piece, piece.reference),
        actual=piece.answers or run_side(piece, piece.candidate),
    )


def _places_of(known: Examination, document: Mapping[str, Any]) -> tuple[int, ...]:
    """The samples to show it on, the one that shows most first."""
    told, suspects = document.get("localization") or {}, document["suspects"]
    places = [int(place) for place in told.get("samples", ())]
    errors = suspects[0].get("per_sample", ()) if suspects else ()
    if places and len(places) == len(errors):
        places = [place for _, place in sorted(zip(map(_size_of_error, errors), places, strict=True), reverse=True)]
    held = [place for place in places if place in known.case.inputs.indices]
    return tuple(held or known.case.inputs.indices)[:_SAMPLES]


def _size_of_error(error: object) -> float:
    return float(error) if isinstance(error, int | float) and math.isfinite(error) else math.inf


def _smallest_region(source: PieceSource, trials: PieceTrials, whole: Piece) -> Piece:
    """The smallest region around the finding's place that shows it; the whole model if none does."""
    tensor = trials.pattern.tensor
    if tensor:
        start = source.graphs.around(tensor)
        end = tensor if source.graphs.has(tensor) else ""
        piece = _try_nodes(source, trials, start, f"the region that ends in {tensor}", only=end)
        if piece is not None:
            return _without_nodes(source, trials, start, piece, only=end)
    if not trials.shows(whole, "region", "the whole model"):
        last = trials.attempts[-1]
        raise GoneError(
            f"the finding of the study, {trials.pattern.code} at {trials.pattern.node or 'no place'}, does not show any "
            f"more: {last.told or last.shows}",
            fix="run `parityscope diagnose` again; with answers that vary, ask more often: --repeat 5",
        )
    document = trials.document
    for hops in _HOPS if tensor else ():
        nodes = source.graphs.grown(start, hops)
        if len(nodes) >= whole.nodes:
            break
        piece = _try_nodes(source, trials, nodes, f"the nodes up to {hops} away from it")
        if piece is not None:
            return _without_nodes(source, trials, nodes, piece)
    trials.document = document
    return whole


def _try_nodes(
    source: PieceSource,
    trials: PieceTrials,
    nodes: frozenset[int],
    what: str,
    *,
    only: str = "",
    below: float = math.inf,
) -> Piece | None:
    """The piece of these nodes if it shows the finding; one of not `below` so many nodes is not worth a run."""
    try:
        cut = source.graphs.cut(nodes, only)
        if len(cut.nodes) >= below:
            return None
        piece = source.piece(cut)
    except ParityError as error:
        trials.note("region", what, error.problem)
        return None
    return piece if trials.shows(piece, "region", what) else None


def _without_nodes(
    source: PieceSource, trials: PieceTrials, nodes: frozenset[int], piece: Piece, *, only: str = ""
) -> Piece:
    """The piece without the nodes that it does not need: halves are left out first, single nodes last."""
    left, parts = sorted(nodes), 2
    while len(left) > 1 and trials.may_go_on():
        smaller = None
        for chunk in _split_in_chunks(left, parts):
            kept = frozenset(left) - frozenset(chunk)
            end = only if _makes_tensor(source, kept, only) else ""
            what = f"without {len(chunk)} of {len(left)} nodes"
            smaller = (
                _try_nodes(source, trials, kept, what, only=end, below=piece.nodes) if trials.may_go_on() else None
            )
            if smaller is not None:
                left, piece, parts = sorted(kept), smaller, max(2, parts - 1)
                break
        if smaller is None and parts >= len(left):
            break
        parts = parts if smaller is not None else min(2 * parts, len(left))
    return piece


def _makes_tensor(source: PieceSource, nodes: frozenset[int], tensor: str) -> bool:
    """Whether one of the nodes makes this tensor."""
    return bool(tensor) and any(value.name == tensor for place in nodes for value in source.graphs.nodes[place].outputs)


def _split_in_chunks(items: Sequence[int], parts: int) -> list[Sequence[int]]:
    size = math.ceil(len(items) / parts)
    return [items[start : start + size] for start in range(0, len(items), size)]


def reduce_study(
    document: Mapping[str, Any],
    folder: Path,
    *,
    replaced: Mapping[str, str] | None = None,
    again: str = _AGAIN,
    runs: int = 0,
    repeats: int = 0,
    progress: Progress = ignore_progress,
) -> Reduced:
    """The smallest model that shows the first finding of a study.

    `folder` is scratch and holds the piece's files; `replaced` are options of the question in place of the study's, `again` the
    command that they would be added to. `runs` and `repeats` are those of `reduce_examination`.

    Raises:
        GoneError: the finding does not show any more.
        ParityError: the study has no finding, does not say what was asked, names code that `replaced` does not name, or what it
            names is gone or another.
    """
    with as_written():
        pattern_of(document)
        kept = ask_again(document, replaced or {}, again)
        digests = {what: str(document[what]["sha256"]) for what in ("model", "inputs")}
    with open_request(kept.request) as asked:
        notes = check_digests(digests, kept, asked, replaced or {})
        known = replace(asked, folder=folder / "examination", progress=progress)
        found = reduce_examination(known, document, folder, runs=runs, repeats=repeats)
    return replace(found, notes=(*kept.notes, *notes))
