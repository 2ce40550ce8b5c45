"""`parityscope completion bash`: what TAB completes, as a script; `--install` puts it where new shells find it.

The script is written from the commands themselves, verbs with their options and the words that options take, so that TAB costs
no start of Python. Files are completed everywhere else.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parityscope.errors import Exit, ParityError
from parityscope.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["NAME", "command"]

NAME = "completion"

_FORMATS = ("f16", "bf16", "tf32", "f32", "int8", "fp8")
_SCRIPT = """# bash completion for parityscope, written by: parityscope completion bash
_parityscope() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words=""
    if (( COMP_CWORD == 1 )); then
        words="{verbs} --help --version --lang"
    else
        case $before in
{values}
        esac
        if [[ -z $words && $word == -* ]]; then
            case ${{COMP_WORDS[1]}} in
{options}
            esac
        fi
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    case $before in --format|--lang) return;; esac
    local IFS=$'\\n'  # names of files may hold blanks
    [[ $word == -* ]] || COMPREPLY+=($(compgen -f -- "$word"))
}}
complete -o filenames -F _parityscope parityscope
"""


def command(
    shell: Annotated[str, typer.Argument(help="The shell: bash.")] = "bash",
    *,
    install: Annotated[bool, typer.Option("--install", help="Put it where new shells find it.")] = False,
) -> int:
    """Prints the script that completes verbs, options and targets in a shell, or installs it."""
    if shell != "bash":
        raise ParityError(f"there is no completion for {shell!r}", fix="use one of: bash")
    script = _bash_script()
    if not install:
        print(script, end="")
        return Exit.WITHIN
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    path = Path(home, "bash-completion", "completions", "parityscope")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, script)
    print(f"{path} is written: new shells complete parityscope", file=sys.stderr)
    print(f"without the package bash-completion, add to ~/.bashrc: source {path}", file=sys.stderr)
    return Exit.WITHIN


def _bash_script() -> str:
    from parityscope.backends import known_backends
    from parityscope.cli.shell.app import command as whole
    from parityscope.languages import LANGUAGES
    from parityscope.report import known_renderers

    commands: Mapping[str, Any] = vars(whole())["commands"]
    targets = [*_FORMATS, *sorted(known_backends())]
    values = {
        "--candidate|--reference|--target|--before|--after|--peer": targets,
        "--formats|--declared|--low": _FORMATS,
        "--format": sorted(known_renderers()),
        "--lang": sorted(LANGUAGES),
        "list": ["backends", "checks", "rules", "metrics", "repairs", "formats"],
    }
    options = {name: _options_of(one) for name, one in sorted(commands.items())}
    options["*.[oO][nN][nN][xX]"] = options["look"]  # a model alone
    return _SCRIPT.format(
        verbs=" ".join(sorted(commands)),
        values="\n".join(f'            {key}) words="{" ".join(found)}";;' for key, found in values.items()),
        options="\n".join(f'                {name}) words="{" ".join(found)}";;' for name, found in options.items()),
    )


def _options_of(one: Any) -> Sequence[str]:  # typer's own, which has no public types
    return sorted({name for each in one.params for name in each.opts if name.startswith("-")} | {"--help", "--lang"})
