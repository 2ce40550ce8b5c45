"""What to do: the best repair with what was measured of it, further ones, and what tells whether it helped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report.offered import diagnose_again_command, name_written_file, proof_command
from parityscope.report.repair_effects import (
    KEEP,
    SYMPTOMS,
    describe_change,
    describe_effect,
    describe_left,
    is_rounding_left,
    left_by_proof,
    runtime_of,
)
from parityscope.report.screen_rows import LONGEST, SHORTER, cut_text, make_row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from parityscope.report.screen_rows import Row

MOST_ADVICE = 3
_SEARCHED = "search for the smallest change that keeps the error within 1 % (another limit: --budget):"


def rows_of_repairs(offered: Sequence[Mapping[str, Any]], searching: str, document: Mapping[str, Any]) -> Iterator[Row]:
    """The best repair that was tried, or the first that is offered; then two more, of which none has a command that was told.

    `searching` is the command that searches the model's repair, "" where there is none.
    """
    told: set[str] = set()
    for repair in offered:
        command = (str(repair["command"] or _one_line(repair["code_lines"])).splitlines() or [""])[0]
        if len(told) == MOST_ADVICE or command in told or repair["text"] in told:
            continue
        text = cut_text(repair["text"], SHORTER if told else LONGEST)
        if told:
            yield make_row(
                "or",
                f"{text} ({f'tried: {change}' if (change := describe_change(repair, document)) else 'not tried'})",
            )
            told.add(command or repair["text"])
            continue
        text = f"{text}; {left} is left" if (left := describe_left(repair, document)) else text
        if repair["tried_file"]:
            kept = (
                f", where {repair['trial']['note']} (its types tell the engine so: --stronglyTyped, not --fp16)"
                if repair["repair"] == KEEP
                else ""
            )
            text = f"use {repair['tried_file']}{kept}; the change in it: {text}"
        elif command.startswith("trtexec ") and ((known := runtime_of(document)) is None or known.tensorrt != "yes"):
            text = f"{text}; where TensorRT runs it:"
        label = "Fix" if repair["cures"] and repair["code"] not in SYMPTOMS else "Then"
        note = describe_effect(repair, document)
        # What simulates a file once more is no step to take: the row behind it says what is.
        again = repair["tried_file"] and (known := runtime_of(document)) is not None and known.simulates
        yield make_row(label, text, command="" if again else command, note=note)
        told.add(command or repair["text"])
        if repair["repair"] == KEEP and searching and searching not in told:
            # What was tried to prove the cause may keep more in FP32 than has to be.
            yield make_row("or", _SEARCHED, command=searching)
            told.add(searching)
    if len(told) == 1 and offered[0]["cures"] and searching and searching not in told:
        yield make_row("or", _SEARCHED, command=searching)


def rows_of_proof(document: Mapping[str, Any], offered: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    """What tells whether the first repair helped, with the file that it writes; of a prediction, what tests the real one."""
    best = offered[0] if offered and offered[0]["cures"] else None
    tried, written = (best["tried_file"], name_written_file(best["command"])) if best else ("", "")
    proof, known = proof_command(document, written), runtime_of(document)
    deployed = f"deploy {tried or written}" if tried or written else ""
    if known is not None and known.simulates:
        told = f"{deployed or 'deploy it'}, record its outputs and look at them: so far a prediction"
        yield make_row("Then", told, command=proof)
    elif best and not tried and (written or not best["command"].startswith("parityscope")):
        again = "record it again" if known is not None and known.recorded else "" if written else "do it"
        steps = ", ".join(one for one in (deployed, again) if one)
        if best["code"] in SYMPTOMS:
            yield make_row("Next", f"{steps}, and this tells whether it is wrong again:", command=proof)
        elif proof.startswith("parityscope verify "):
            yield make_row("Then", f"{steps}, and this tells whether it helped:", command=proof)
        elif proof:  # where what ran is changed itself, nothing is left to hold it against
            yield make_row("Then", f"{steps}, and this tells whether anything is left:", command=proof)
        else:  # what lay in a program's memory has no command
            yield make_row("Then", f"{steps}, and diagnose it once more: that tells whether anything is left")
        if rest := _command_for_rest(document):
            yield make_row("Then", "look for the rest, which nothing that was tried explains:", command=rest)


def _command_for_rest(document: Mapping[str, Any]) -> str:
    """What diagnoses the next recording, where the first cause leaves more than the arithmetic explains; else ""."""
    causes = [one for one in document.get("findings", ()) if one.get("role") == "cause"]
    left = left_by_proof(document, causes[0]) if causes else None
    known = runtime_of(document)
    if left is None or is_rounding_left(document, left) or known is None or not known.recorded:
        return ""
    return diagnose_again_command(document)


def _one_line(written: Mapping[str, str]) -> str:
    """What an advice wrote, where that is one line: the setting that switches something off."""
    lines = [line for line in written.get("lines", "").splitlines() if not line.startswith("#")]
    return lines[0] if len(lines) == 1 else ""
