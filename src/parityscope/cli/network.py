"""`parityscope network`: what TensorRT makes of an ONNX file, parsed and built without a GPU and without a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parityscope.cli import _options as o
from parityscope.cli._network_view import FixOption, NetworkWords, SettleOption, asked_options
from parityscope.cli.shell.contained import contain_work
from parityscope.cli.shell.output import check_model_file, claim_file, command_line
from parityscope.errors import Exit
from parityscope.private_folders import scratch_folder

if TYPE_CHECKING:
    from parityscope.backends.tensorrt.network import NetworkView
    from parityscope.backends.tensorrt.options import TensorrtOptions
    from parityscope.backends.tensorrt.packages import Package
    from parityscope.cli.shell.answering import Answer

__all__ = ["NAME", "command"]

NAME = "network"


def command(
    model: o.ModelArgument,
    *,
    candidate: Annotated[str, typer.Option(help="How to build: trt?key=value&... (docs/tensorrt.md).")] = "trt",
    inputs: o.InputsOption = "",
    shapes: o.ShapesOption = None,
    fix: FixOption = None,
    settle: SettleOption = False,
    settled: Annotated[Path | None, typer.Option(help="Write the settled model here (.onnx).")] = None,
    product: Annotated[str, typer.Option(help="tensorrt or rtx [the first that is installed].")] = "",
    tf32: Annotated[
        bool, typer.Option("--tf32", help="Let products round to TF32, as trtexec does by default.")
    ] = False,
    keep_log: Annotated[Path | None, typer.Option(help="Keep the builder's verbose log here.")] = None,
    answer: Answer,
) -> int:
    """Parses and builds a model with TensorRT and tells what became of every node; exit code 1 if it is refused."""
    from parityscope.report.network import FORMS

    answer.claim(FORMS)
    claim_file(settled, "--settled")
    check_model_file(model)

    def work(log: Path) -> int:
        asked = NetworkWords(candidate=candidate, inputs=inputs, shapes=shapes, fix=fix, product=product)
        package, options = asked_options(model, asked, settle=settle or bool(settled), tf32=tf32)
        return _tell_view(model, package, options, log, settled, answer)

    with scratch_folder("network") as scratch:
        log = keep_log or Path(scratch, "build.log")
        return contain_work(lambda: work(log), log, "TensorRT")


def _tell_view(
    model: Path,
    package: Package,
    options: TensorrtOptions,
    log: Path,
    settled: Path | None,
    answer: Answer,
) -> int:
    from parityscope.backends.tensorrt.findings import find_in_view
    from parityscope.backends.tensorrt.network import network_view
    from parityscope.report.network import FORMS, network_document
    from parityscope.version import __version__

    view = network_view(model, package, options, log_file=log)
    if settled is not None:
        _write_files(view, settled, model)
    held = network_document(view, find_in_view(view), model=model, version=__version__, command=command_line())
    answer.hand_over(FORMS, held)
    answer.summarize(", ".join(f"{count} {fate}" for fate, count in sorted(held["fates"].items())))
    return Exit.BEYOND if view.problem else Exit.WITHIN


def _write_files(view: NetworkView, settled: Path, model: Path) -> None:
    import onnx
    from onnx.external_data_helper import load_external_data_for_model

    load_external_data_for_model(view.settled, str(model.parent))
    onnx.save(view.settled, settled)
