"""`parityscope network`: what TensorRT makes of an ONNX file, parsed and built without a GPU and without a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parityscope.cli import _options as o
from parityscope.cli._network_options import FixOption, SettleOption, values_of
from parityscope.cli.shell.contained import contain_work
from parityscope.cli.shell.output import claim_file
from parityscope.cli.shell.progress import name_caller
from parityscope.private_folders import scratch_folder

if TYPE_CHECKING:
    from parityscope.cli.shell.answering import Answer

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
    from parityscope.api.shared.files import NetworkAsked, report_network
    from parityscope.report.network import FORMS

    answer.claim(FORMS)
    claim_file(settled, "--settled")
    asked = NetworkAsked(
        target=candidate,
        inputs=inputs,
        shapes=o.shapes_of(shapes),
        values=values_of(fix),
        product=product,
        settle=settle or bool(settled),
        tf32=tf32,
    )

    def work(log: Path) -> int:
        found = report_network(model, asked, log=log, settled=settled, caller=name_caller(quiet=answer.quiet))
        answer.hand_over(FORMS, found.document)
        answer.summarize(", ".join(f"{count} {fate}" for fate, count in sorted(found.document["fates"].items())))
        return found.exit

    with scratch_folder("network") as scratch:
        log = keep_log or Path(scratch, "build.log")
        return contain_work(lambda: work(log), log, "TensorRT")
