"""Is it usable: what somebody who uses the outputs sees of the difference, in one sentence.

Nothing is averaged over NaN: what is not finite is counted.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from parityscope.comparison.decisions import NOTICED
from parityscope.report._tensors import GRADES
from parityscope.report.words import (
    as_number,
    clean,
    format_count,
    format_error,
    format_figure,
    format_percent,
    shorten_name,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NAME = 40  # characters of a name, as on the first screen
_REAL = "DAT004"  # says that the error belongs to the test data
# Times what is expected: from the first on it is told as a multiple, and the second is far enough for everybody; chosen.
_MORE, _MOST_TIMES = 2, 1000
_CHANGED = {
    "classes": "top-1 of '{}' changed in {} of {} rows",
    "positions": "top-1 of '{}' changed at {} of {} positions",
    "segments": "the class of '{}' changed at {} of {} pixels",
    "order": "the order of '{}' changed at {} of {} places",
}
# Where no decision changes.
_SAME = {
    "classes": "top-1 of '{}' is the same in all {} rows",
    "positions": "top-1 of '{}' is the same at all {} positions",
    "segments": "the class of '{}' is the same at all {} pixels",
    "boxes": "all {1} boxes of '{0}' are kept",
    "rows": "both sides have as many rows of '{}'",
    "mask": "the mask of '{}' is the same",
    "sides": "all {1} numbers of '{0}' are on the same side of the threshold",
    "order": "the order of '{}' is the same",
}
_TOP = frozenset({"classes", "positions"})
_SHAPE = re.compile(r"\[[\d, ]*\]")
_UNUSABLE = "cannot be used as it is"
_ALLOWED = "within what is allowed, but"  # instead of that it can be used, where decisions changed
_FAR = 100  # times the expected rounding error: no use of a model takes that for the same result; chosen
_SAME_DIRECTION = 1e-4  # of a cosine that is not told: no search ranks otherwise by less; chosen


def describe_usability(document: Mapping[str, Any]) -> str:
    """What somebody who uses the outputs sees: NaN before anything else, then decisions, then how far numbers are off."""
    outputs = list(document.get("outputs", ()))
    if fair := _describe_real_data(document):
        return fair
    if lost := _describe_not_finite(outputs):
        return f"{_UNUSABLE}; {lost}" if document.get("verdict") == "beyond" else lost
    worst = max(outputs, key=badness_of_output, default=None)
    if worst is None:
        return "nothing was compared"
    verdict = document.get("verdict")
    decided = _most_changed(outputs)
    alike = next((same for one in outputs if (same := _describe_same_decisions(one))), "")
    said = alike
    if decided:
        flip, usual = _describe_flip(decided, document), _describe_usual_changes(decided, document)
        clear = not (decided["decisions"].get("flip") or {}).get("explained", True)
        said = f"{_describe_decisions(decided)}{flip if clear else usual or flip}"
    told = [*([said] if said else []), _describe_difference(worst, document)]
    if verdict == "beyond":
        told.insert(0, _UNUSABLE if decided or _is_far_off(worst, document) else "differs more than it should")
        named = {str(one.get("name")) for one in (worst, decided) if one}
        more = sum(one.get("verdict") == "beyond" and str(one.get("name")) not in named for one in outputs)
        if more:
            told.append("1 other output is beyond too" if more == 1 else f"{more} other outputs are beyond too")
    elif decided and are_decisions_others(document):
        told[0] = f"{_ALLOWED} {told[0]}"
    else:
        told.insert(0, _judge_by_samples(document) if verdict == "within" else "not everything could be judged")
    told[1:1] = _describe_other_shapes(document)
    return "; ".join(told)


def are_decisions_others(document: Mapping[str, Any]) -> bool:
    """Whether outputs are within, and so many decisions are others that nobody may overlook them."""
    decided = _most_changed(list(document.get("outputs", ())))
    return (
        document.get("verdict") == "within" and decided is not None and _changed_share(decided["decisions"]) >= NOTICED
    )


def _judge_by_samples(document: Mapping[str, Any]) -> str:
    """That the outputs can be used, and by how many samples that is judged."""
    count = int(as_number((document.get("inputs") or {}).get("samples")) or 0)
    by = f", judging by {format_count(count)} {'sample' if count == 1 else 'samples'}" if count else ""
    return f"can be used{by}"


def describe_decisions_after(document: Mapping[str, Any], decisions: Mapping[str, Any]) -> str:
    """What users of the output whose decisions changed most see once a repair is made; "" where nothing shows that."""
    changed = _most_changed(list(document.get("outputs", ())))
    after = {**changed, "decisions": decisions.get(str(changed.get("name")))} if changed else {}
    return (_describe_decisions(after) or _describe_same_decisions(after)) if after else ""


def _describe_other_shapes(document: Mapping[str, Any]) -> list[str]:
    """The first output that could not be compared since its shape is another one; nothing where none is."""
    for skip in document.get("skipped", ()):
        what, _, name = str(skip.get("what", "")).partition(" ")
        reason = str(skip.get("reason", ""))
        shapes = _SHAPE.findall(reason) if what == "output" and " shape is " in reason else []
        if len(shapes) > 1:
            ours, theirs = shapes[:2]
            return [
                f"the shape of '{shorten_name(name, _NAME)}' is {ours} in the reference and {theirs} in the candidate"
            ]
    return []


def _describe_real_data(document: Mapping[str, Any]) -> str:
    """Where real data is within and the given data is not, that comes before anything else; else ""."""
    for one in document.get("findings", ()):
        real = as_number((one.get("details") or {}).get("real")) if one.get("code") == _REAL else None
        if real is not None:
            return f"right on the real samples, where it differs by {format_percent(real)}; the given data is not like them"
    return ""


def _describe_not_finite(outputs: Sequence[Mapping[str, Any]]) -> str:
    """How much of the outputs is NaN or infinite in the candidate alone; "" if nothing is."""
    lost = [(one, *lost_elements(one)) for one in outputs]
    hurt = [(one, bad, whole) for one, bad, whole in lost if bad]
    if not hurt:
        return ""
    if len(outputs) == len(hurt) and all(bad == whole for _, bad, whole in hurt):
        every = f"all {len(outputs)} outputs are" if len(outputs) > 1 else f"the output '{name_output(outputs[0])}' is"
        return f"{every} NaN or infinite"
    one, bad, whole = max(hurt, key=lambda each: each[1] / max(each[2], 1))
    part = f"{format_percent(bad / whole)} of " if whole else f"{format_count(bad)} numbers of "
    more = f", and {len(hurt) - 1} more of {len(outputs)} outputs hold some" if len(hurt) > 1 else ""
    return f"{part}output '{name_output(one)}' is NaN or infinite ({format_count(bad)} of {format_count(whole)} numbers){more}"


def lost_elements(output: Mapping[str, Any]) -> tuple[int, int]:
    """Elements that are finite in the reference alone, and all."""
    found = output.get("nonfinite") or {}
    statistics = output.get("statistics") or {}
    return int(as_number(found.get("candidate")) or 0), int(as_number(statistics.get("count")) or 0)


def _most_changed(outputs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The output of whose decisions the largest share is another; None where none is."""
    changed = [one for one in outputs if _describe_decisions(one)]
    return max(changed, key=lambda one: _changed_share(one["decisions"]), default=None)


def _changed_share(decisions: Mapping[str, Any]) -> float:
    count, lost, new = (int(decisions[key]) for key in ("count", "changed", "new"))
    least = as_number(decisions["least"])
    return max((lost + new) / max(count, 1), 1 - (1.0 if least is None else least))


def _describe_decisions(output: Mapping[str, Any]) -> str:
    """What users of the output see change; "" where nothing does, or where nothing shows what it decides."""
    found = output.get("decisions")
    if not found:
        return ""
    name, kind, least = name_output(output), found["kind"], as_number(found["least"])
    count, changed, new = (int(found[key]) for key in ("count", "changed", "new"))
    if kind == "embedding":
        alike = least is None or 1 - least <= _SAME_DIRECTION
        return "" if alike else f"the cosine of '{name}' falls to {format_figure(least)}"
    if not changed and not new:
        moved = int(found.get("reordered") or 0)
        return f"the order of the best of '{name}' changed in {_of(moved, count)} rows" if moved else ""
    if kind == "sides":
        at = as_number(found.get("at"))
        return f"{_of(changed, count)} numbers of '{name}' are on the other side of {format_figure(0.5 if at is None else at)}"
    if kind == "boxes":
        return f"{format_count(changed)} of {format_count(count)} boxes of '{name}' are lost and {format_count(new)} are new"
    if kind == "rows":
        fewer = f"'{name}' lacks {format_count(changed)} of {format_count(count)} rows"
        more = f"'{name}' has {format_count(new)} rows more than the reference's {format_count(count)}"
        return " and ".join(words for number, words in ((changed, fewer), (new, more)) if number)
    if kind == "mask":
        return f"the mask of '{name}' has an IoU of {format_percent(1 - changed / max(count, 1))}"
    if count == 1:
        return f"top-1 of '{name}' changed" if kind in _TOP else f"the class of '{name}' changed"
    texts = int(found.get("sequences_changed") or 0) if kind == "positions" else 0
    told = f", in {_of(texts, int(found['sequences']))} sequences" if texts else ""
    return _CHANGED[kind].format(name, format_count(changed), format_count(count)) + told


def _of(part: int, whole: int) -> str:
    return f"{format_count(part)} of {format_count(whole)}"


def _describe_flip(output: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    """The decision that the arithmetic explains least: which it is and how clear it was, or that all are explained."""
    flip = output["decisions"].get("flip")
    if not flip:
        return ""
    grade = _grade_of(document)
    if flip["explained"]:
        return f" (rounding in {grade} explains it)"
    gap, allowed = (format_figure(as_number(flip[key]) or 0.0) for key in ("gap", "allowed"))
    return f" ({_place_of_flip(flip)}, clear by {gap}, where {grade} explains {allowed})"


def _place_of_flip(flip: Mapping[str, Any]) -> str:
    """Which decision it is, and what it became."""
    kind, index = flip.get("kind"), [int(one) for one in flip.get("index", ())]
    place = f"sample {flip['sample']}"
    if kind == "positions" and index:
        place += f": step {index[-1]}"
    elif any(index):
        place += f": index {', '.join(map(str, index))}"
    if kind in {"sides", "mask", "boxes"}:
        return f"{place}, {'above' if flip['was'] else 'not above'} the threshold in the reference alone"
    rank = f" at place {int(flip.get('rank') or 0) + 1}" if flip.get("rank") else ""
    what = "" if kind == "order" else "class "
    return f"{place}, {what}{flip['became']} instead of {flip['was']}{rank}"


def _grade_of(document: Mapping[str, Any]) -> str:
    declared = str((document.get("policy") or {}).get("declared") or "")
    return GRADES.get(declared, clean(declared))


def _describe_usual_changes(output: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    """How many decisions the declared arithmetic changes by itself; "" where that is not known."""
    found = output["decisions"]
    changed, count = as_number(found.get("usual_changed")), int(found.get("usual_count") or 0)
    if changed is None or not count:
        return ""
    declared = str((document.get("policy") or {}).get("declared") or "")
    grade = GRADES.get(declared, clean(declared))
    return f" ({grade} itself changes {format_count(round(changed))} of {format_count(count)})"


def _describe_same_decisions(output: Mapping[str, Any]) -> str:
    """That users of the output see nothing change; "" where nothing shows what it decides."""
    found = output.get("decisions") or {}
    kind = str(found.get("kind"))
    if kind in _TOP and int(found["count"]) == 1:
        return f"top-1 of '{name_output(output)}' is the same"
    told = _SAME.get(kind)
    return told.format(name_output(output), format_count(found["count"])) if told and int(found["count"]) else ""


def _is_far_off(output: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
    """Whether an output is off by so many times its expected rounding error that it is another result."""
    expected = _expected_of(output, document)
    measured = as_number(output.get("rel_l2")) or 0.0
    return not math.isfinite(measured) or (expected is not None and measured > _FAR * expected)


def _expected_of(output: Mapping[str, Any], document: Mapping[str, Any]) -> float | None:
    return as_number((output.get("expected") or {}).get(str((document.get("policy") or {}).get("declared") or "")))


def _describe_difference(output: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    """The error of an output beside what its arithmetic explains."""
    declared = str((document.get("policy") or {}).get("declared") or "")
    expected = _expected_of(output, document)
    measured = as_number(output.get("rel_l2"))
    name = name_output(output)
    if measured is None:
        return f"'{name}' was not compared"
    if not math.isfinite(measured):
        most = as_number(output.get("max_abs"))
        if most is None or not math.isfinite(most):
            return f"'{name}' differs, by no share that can be told"
        return f"'{name}' differs, by no share that can be told: by up to {format_error(most)}"
    if not measured:
        return f"'{name}' is the same"
    told = f"'{name}' differs by {format_percent(measured, exact=True)}"
    if not expected:
        return told
    grade = GRADES.get(declared, clean(declared))
    if measured > _MORE * expected:
        times = measured / expected
        if times >= _MOST_TIMES:
            return f"{told}, over {format_count(_MOST_TIMES)} times {grade}'s expected rounding error"
        return f"{told}, {format_figure(times)} times {grade}'s expected rounding error"
    return f"{told}; {grade}'s expected rounding error is {format_percent(expected, exact=True)}"


def badness_of_output(output: Mapping[str, Any]) -> tuple[bool, float]:
    """By what outputs are ordered, the worst last: those beyond behind all others, then by their error."""
    error = as_number(output.get("rel_l2"))
    rank = -1.0 if error is None else math.inf if math.isnan(error) else error
    return output.get("verdict") == "beyond", rank


def name_output(output: Mapping[str, Any]) -> str:
    """The name of an output, shortened."""
    return shorten_name(output.get("name", ""), _NAME)
