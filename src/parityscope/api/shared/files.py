"""What a model's file says, what TensorRT makes of it, and what logs of its builds say."""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from parityscope.api.asking import PYTHON, Caller
from parityscope.api.results import Report
from parityscope.errors import EXIT_OF, Exit, ParityError
from parityscope.light_dataclasses import dataclass, field, replace
from parityscope.private_folders import scratch_folder
from parityscope.records import ROLES
from parityscope.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from parityscope.backends.tensorrt.network import NetworkView
    from parityscope.backends.tensorrt.options import TensorrtOptions
    from parityscope.backends.tensorrt.packages import Package
    from parityscope.case.sources import Stream
    from parityscope.linting import Lint
    from parityscope.logs import Log, LogPair


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkAsked:
    """How TensorRT is to build a model: a target of `trt`, the samples or shapes that its inputs get, and what becomes constant.

    `sizes` are the shapes of samples that were loaded already, `values` the inputs that become constants. `settle` computes what
    shapes and constants decide before the build; `tf32` lets products round to TF32.
    """

    target: str = "trt"
    inputs: str | Path | Stream | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    values: Mapping[str, np.ndarray] = field(default_factory=lambda: MappingProxyType({}))
    product: str = ""
    sizes: tuple[Mapping[str, tuple[int, ...]], ...] = ()
    settle: bool = False
    tf32: bool = False


def report_lint(
    model: Path,
    formats: Sequence[str],
    network: NetworkAsked | None = None,
    *,
    log: Path | None = None,
    caller: Caller = PYTHON,
) -> Report[Lint]:
    """What the file says about `formats`; with `network` what a build of it says too, whose log is written to `log`.

    Raises:
        ParityError: the file cannot be read, there is no such format, or TensorRT cannot be asked.
    """
    from parityscope.linting import lint
    from parityscope.report.lint import FORMS, lint_document

    found = lint(model, formats, loaded=True)
    if network is not None and log is not None:
        more = report_network(model, network, log=log, caller=caller).record
        from parityscope.backends.tensorrt.findings import find_in_view

        ordered = sorted((*found.findings, *find_in_view(more)), key=lambda finding: ROLES.index(finding.role))
        found = replace(found, findings=tuple(ordered))
    document = lint_document(found, command=caller.command)
    return Report(document=document, record=found, forms=FORMS, exit=EXIT_OF[document["verdict"]])


def report_network(
    model: Path, asked: NetworkAsked, *, log: Path, settled: Path | None = None, caller: Caller = PYTHON
) -> Report[NetworkView]:
    """What TensorRT makes of a model, parsed and built without a GPU; `settled` is where the settled model is written.

    Raises:
        ParityError: an option cannot be met, a dynamic input has no shape, or TensorRT is not installed.
    """
    from parityscope.backends.tensorrt.findings import find_in_view
    from parityscope.backends.tensorrt.network import network_view
    from parityscope.case.intake import read_message
    from parityscope.report.network import FORMS, network_document

    read_message(
        model
    )  # what is no model is refused early, so that a builder's own words about it need not be understood
    package, options = _tensorrt_options(model, asked)
    view = network_view(model, package, options, log_file=log)
    if settled is not None:
        import onnx
        from onnx.external_data_helper import load_external_data_for_model

        load_external_data_for_model(view.settled, str(model.parent))
        onnx.save(view.settled, settled)
    document = network_document(view, find_in_view(view), model=model, command=caller.command)
    return Report(document=document, record=view, forms=FORMS, exit=Exit.BEYOND if view.problem else Exit.WITHIN)


def _tensorrt_options(path: Path, asked: NetworkAsked) -> tuple[Package, TensorrtOptions]:
    """The package, and the options of the target with what else is asked.

    Raises:
        ParityError: the target is none of `trt`, or an option cannot be met.
    """
    from parityscope.backends import known_backend
    from parityscope.backends.targets import check_target, parse_target
    from parityscope.backends.tensorrt.options import options_of
    from parityscope.backends.tensorrt.packages import find_package
    from parityscope.backends.tensorrt.profiles import check_covered, ranges_of_samples

    target = parse_target(asked.target)
    found = known_backend(target.backend)
    if found is None or found.tensorrt != "yes" or target.option("engine"):
        raise ParityError(
            f"{asked.target} is not built from a model by TensorRT", fix="write 'trt' or 'trt?key=value&...'"
        )
    check_target(target, found)
    package = find_package(asked.product or target.option("product"))
    if asked.tf32:
        rest = tuple(item for item in target.options if item[0] != "tf32")
        target = replace(target, options=(*rest, ("tf32", "on")))
    options = options_of(target, package)
    values = {**options.values, **asked.values}
    sizes = asked.sizes or (_shapes_of_samples(path, asked.inputs) if asked.inputs else ())
    ranges = dict(options.shapes) or ranges_of_samples(sizes)
    ranges |= ranges_of_samples([asked.shapes])
    ranges = {name: one for name, one in ranges.items() if name not in values}
    check_covered(ranges, sizes)
    settles = asked.settle or options.settle or bool(values)
    return package, replace(options, shapes=ranges, values=values, settle=settles)


def _shapes_of_samples(path: Path, inputs: str | Path | Stream) -> list[dict[str, tuple[int, ...]]]:
    from parityscope.case import load_inputs, load_model

    with scratch_folder("spool") as scratch:
        loaded = load_inputs(load_model(path), inputs, spool=Path(scratch))
        return [{name: array.shape for name, array in sample.arrays.items()} for sample in loaded]


def report_log(
    file: Path,
    other: Path | None = None,
    *,
    profiles: Sequence[Path] = (),
    node_times: Path | None = None,
    caller: Caller = PYTHON,
) -> Report[Log | LogPair]:
    """What a log of a build says, or two of them beside each other.

    `profiles` are times of layers, one for each log; `node_times` is where the times of nodes in both builds are written.

    Raises:
        ParityError: a log cannot be read, there are not as many profiles as logs, or no times to write.
    """
    from parityscope.logs import compare_logs, find_in_log, find_pair
    from parityscope.report.log import FORMS, log_document

    logs = _read_logs([file, *([other] if other is not None else [])], profiles)
    pair = compare_logs(*logs) if len(logs) > 1 else None
    if node_times is not None:
        _write_times(pair, node_times)
    findings = find_pair(pair) if pair else find_in_log(logs[0])
    document = log_document(logs[0], findings, command=caller.command, pair=pair)
    return Report(document=document, record=pair or logs[0], forms=FORMS, exit=EXIT_OF[document["verdict"]])


def _read_logs(files: Sequence[Path], profiles: Sequence[Path]) -> list[Log]:
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
