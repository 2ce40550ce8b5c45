"""What a target needs on another machine: the files that it names, a GPU, its runtime."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from parityscope.backends import backend_named
from parityscope.case.intake import external_files, read_message
from parityscope.workers import ShippedFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from parityscope.records import Target

__all__ = ["files_of_model", "files_of_targets", "locate_target", "needs_gpu"]

_ON_GPU = ("cuda", "tensorrt", "gpu")


def files_of_model(path: Path) -> ShippedFiles:
    """A model with its external data."""
    return ShippedFiles(path=path, files=(path, *external_files(read_message(path), path)))


def files_of_targets(targets: Sequence[Target]) -> tuple[ShippedFiles, ...]:
    """All that options of targets name and that is here, each once."""
    return tuple({found.path: found for target in targets for found in _named_files(target)}.values())


def locate_target(target: Target, places: Mapping[str, Path]) -> Target:
    """The target with its files where they lie there; `places` by the paths that they have here."""
    return replace(target, options=tuple((key, str(places.get(value, value))) for key, value in target.options))


def needs_gpu(target: Target) -> bool:
    """Whether a target runs on an NVIDIA GPU."""
    device = target.option("device") or target.option("provider")
    return backend_named(target.backend).tensorrt == "yes" or device.lower().startswith(_ON_GPU)


def _named_files(target: Target) -> Iterator[ShippedFiles]:
    for _, value in target.options:
        path = Path(value)
        try:
            is_file, is_folder = path.is_file(), path.is_dir()
        except OSError:  # too long for a name
            continue
        if is_folder:
            yield ShippedFiles(path=path, files=tuple(sorted(one for one in path.rglob("*") if one.is_file())))
        elif is_file:
            yield files_of_model(path) if path.suffix == ".onnx" else ShippedFiles(path=path, files=(path,))
