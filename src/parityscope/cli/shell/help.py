"""The help of a subcommand: what it is for, examples that can be typed, and its options by what they are about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand

if TYPE_CHECKING:
    from collections.abc import Mapping

# In the order of the help; an option that none of them names is one of the subcommand's own.
_GROUPS: Mapping[str, frozenset[str]] = {
    "The samples": frozenset(
        {"inputs", "preprocess", "stacked", "shapes", "samples", "seed", "images", "candidate_inputs", "labels", "real"}
        | {"allow_skipped", "state", "steps", "loop", "until_sure"}
    ),
    "What counts as the same": frozenset(
        {"declared", "budgets", "budget", "policy", "mapping", "match", "decide", "floor", "metric", "metrics", "peer"}
    ),
    "What is written": frozenset(
        {"study", "format_name", "output", "whole", "ladder", "keep_tensors", "redact", "quiet", "kept", "write_plan"}
    ),
    "Time and memory": frozenset({"time", "time_budget", "memory", "workers", "thorough", "no_timing", "timing"}),
}
# What somebody types who has a model `m.onnx`, samples in `data/` and, where one is needed, a deployment.
EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "diagnose": (
        "parityscope diagnose m.onnx --inputs data/ --candidate fp16",
        "parityscope diagnose m.onnx --inputs data/ --candidate recorded-outputs/ -o report.html",
    ),
    "compare": (
        "parityscope compare m.onnx --inputs data/ --candidate openvino",
        "parityscope compare yesterday.npz today.npz",
    ),
    "localize": ("parityscope localize m.onnx --inputs data/ --candidate openvino:f16",),
    "predict": ("parityscope predict m.onnx --inputs data/ -o forecast.html",),
    "look": ("parityscope m.onnx", "parityscope look m.onnx --inputs data/"),
    "lint": ("parityscope lint m.onnx", "parityscope lint m.onnx -o lint.html"),
    "log": ("parityscope log build.log", "parityscope log before.log after.log -o logs.html"),
    "network": ("parityscope network m.onnx -o network.html",),
    "pipeline": ("parityscope pipeline pipeline.toml --study study",),
    "preprocessing": ("parityscope preprocessing prepare.toml deploy.py:prepare --images photos/",),
    "repair": ("parityscope repair m.onnx --inputs data/ --low f16 -o m.fixed.onnx",),
    "verify": ("parityscope verify m.onnx --before fp16 --after 'sim:f16?model=m.fixed.onnx' --inputs data/",),
    "evaluate": ("parityscope evaluate m.fixed.onnx --reference m.onnx --inputs data/",),
    "run": ("parityscope run m.onnx --inputs data/ --target openvino:f16 -o recorded-outputs",),
    "check": ("parityscope check parityscope.toml", "parityscope check parityscope.toml -o check.xml -o check.html"),
    "matrix": ("parityscope matrix matrix.toml -o matrix.html",),
    "diff": ("parityscope diff before-study after-study -o diff.html",),
    "serve": ("parityscope serve studies/",),
    "report": ("parityscope report study --all", "parityscope report study -o report.md"),
    "open": ("parityscope open study",),
    "experiment": ("parityscope experiment study RNG001-1",),
    "reduce": ("parityscope reduce study -o proof.zip",),
    "explain": ("parityscope explain RNG001", "parityscope explain WORST"),
    "list": ("parityscope list", "parityscope list checks"),
    "doctor": ("parityscope doctor",),
    "mcp": ("parityscope mcp",),
    "new": ("parityscope new check my_check",),
    "completion": ("parityscope completion --install",),
}


class GroupedCommand(TyperCommand):
    """A subcommand whose help shows examples first and then its options in groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:  # typer's own, which have no public types
        """Writes the examples, the arguments, and the options by what they are about."""
        if examples := EXAMPLES.get(self.name or ""):
            with formatter.section("Examples"):
                for line in examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], **{name: [] for name in _GROUPS}}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                groups[_group_of(parameter)].append(record)
        for name, records in groups.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)


def _group_of(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return "Arguments"
    return next((name for name, held in _GROUPS.items() if parameter.name in held), "Options")
