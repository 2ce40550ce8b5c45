"""`parityscope new`: the file of a new plug-in, which works as it is, and how to register it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from parityscope.errors import Exit, ParityError

NAME = "new"


def command(
    kind: Annotated[str, typer.Argument(help="metric, backend, check, rule, repair or renderer.", show_default=False)],
    name: Annotated[
        str, typer.Argument(help="Of the file and of the plug-in: letters, digits, _.", show_default=False)
    ],
    *,
    folder: Annotated[Path, typer.Option(help="Where the file goes.")] = Path(),
) -> int:
    """Writes the file of a new plug-in that works as it is, and says how to register it."""
    from parityscope.cli.scaffolding import KINDS, check_name, folder_of, text_of

    if kind not in KINDS:
        raise ParityError(f"there is no kind of plug-in {kind!r}", fix=f"use one of: {', '.join(KINDS)}")
    check_name(KINDS[kind], name)
    if not folder.is_dir():
        raise ParityError(f"there is no folder {folder}", where=str(folder), fix=f"make it: mkdir -p {folder}")
    file = folder / f"{name}.py"
    home = folder_of(KINDS[kind])
    text = text_of(kind, name, inside=folder.resolve() == home)
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError as error:
        raise ParityError(
            f"{file} exists already, and nothing is ever overwritten", where=str(file), fix="choose another NAME"
        ) from error
    print(file)
    print(_next_steps(kind, file, home))
    return Exit.WITHIN


def _next_steps(kind: str, file: Path, home: Path) -> str:
    """How to register the plug-in of `file`, and how to test it."""
    from parityscope.cli.scaffolding import KINDS, module_path

    what = KINDS[kind]
    module = module_path(file)
    if file.resolve().parent == home:
        register = "It is registered: it lies in the folder that is searched."
    else:
        register = (
            "Register it in the pyproject.toml of the package that it belongs to, and install that again:\n\n"
            f'    [project.entry-points."{what.package}"]\n    {file.stem} = "{module}"\n\n'
            f"or move it to {home}, where it needs no registration."
        )
    package, _, stem = module.rpartition(".")
    imported = f"from {package} import {stem}" if package else f"import {stem}"
    contract = "\n".join(f"    {line.format(module=stem)}" for line in (imported, *what.contract))
    return f"\n{register}\n\n`parityscope list {what.catalogue}` then shows it. Its contract:\n\n{contract}"
