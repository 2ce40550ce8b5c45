"""`parityscope log`: what logs of TensorRT, trtexec and Polygraphy say, of one build or of two."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parityscope.cli.shell.output import claim_file, command_line
from parityscope.errors import EXIT_OF, ParityError
from parityscope.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.cli.shell.answering import Answer
    from parityscope.logs import Log, LogPair

__all__ = ["NAME", "command"]

NAME = "log"


def command(
    file: Annotated[
        Path,
        typer.Argument(
            help="A log of trtexec, Polygraphy or TensorRT, or an engine's layers (trtexec --exportLayerInfo).",
            show_default=False,
        ),
    ],
    other: Annotated[Path | None, typer.Argument(help="Another build's, to compare with.")] = None,
    *,
    answer: Answer,
    profile: Annotated[
        list[Path] | None,
        typer.Option(help="Times of layers (trtexec --exportProfile), once for each FILE."),
    ] = None,
    node_times: Annotated[
        Path | None, typer.Option(help="With two builds: each node's times, for `repair --profile` (.json).")
    ] = None,
) -> int:
    """Reads logs of TensorRT builds and explains what matters in them; exit code 1 if there is a cause."""
    from parityscope.logs import compare_logs, find_in_log, find_pair
    from parityscope.report.log import FORMS, log_document
    from parityscope.version import __version__

    answer.claim(FORMS)
    claim_file(node_times, "--node-times")
    logs = _read_log([file, *([other] if other is not None else [])], profile or [])
    log = logs[0]
    pair = compare_logs(*logs) if len(logs) > 1 else None
    if node_times is not None:
        _write_times(pair, node_times)
    findings = find_pair(pair) if pair else find_in_log(log)
    held = log_document(log, findings, version=__version__, command=command_line(), pair=pair)
    answer.hand_over(FORMS, held)
    answer.summarize(", ".join(f"{count} {role}" for role, count in held["counts"].items()))
    return EXIT_OF[held["verdict"]]


def _read_log(files: Sequence[Path], profiles: Sequence[Path]) -> list[Log]:
    from parityscope.logs import read_log

    if profiles and len(profiles) != len(files):
        raise ParityError(
            f"there are {len(files)} builds and {len(profiles)} of --profile", fix="give --profile once for each FILE"
        )
    if not profiles and not any(path.suffix == ".json" for path in files):
        return [read_log(path) for path in files]
    from parityscope.backends.tensorrt.engine_log import log_of_layer_info, with_profile

    logs = [log_of_layer_info(path) if path.suffix == ".json" and path.is_file() else read_log(path) for path in files]
    return [with_profile(log, path) for log, path in zip(logs, profiles, strict=True)] if profiles else logs


def _write_times(pair: LogPair | None, path: Path) -> None:
    from parityscope.logs import node_times

    if pair is None:
        raise ParityError("--node-times needs two builds", fix="parityscope log FP32 FP16 --node-times times.json")
    found = node_times(pair)
    held = {
        "nodes": {name: {"f32": full, found.format: low} for name, (full, low) in found.nodes.items()},
        "seconds of layers of no node": {"f32": found.unattributed[0], found.format: found.unattributed[1]},
    }
    try:
        write_whole(path, json.dumps(held, indent=1))
    except OSError as error:
        raise ParityError(
            f"{path.name} cannot be written: {error}", where=str(path), fix="name another file"
        ) from error
