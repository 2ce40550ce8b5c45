"""`parityscope completion SHELL`: what TAB completes in bash, zsh or fish, as a script; `--install` puts it where shells look.

The script is written from the commands themselves, verbs with their options and the words that options take, so that TAB costs
no start of Python. Files are completed everywhere else.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parityscope.errors import Exit, ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

NAME = "completion"

_FORMATS = ("f16", "bf16", "tf32", "f32", "int8", "fp8")
_ALONE = ("--help", "--version", "--lang")  # options that stand before any verb
_CLOSED = ("--format", "--lang")  # options that take no file
_MODEL = "*.[oO][nN][nN][xX]"
_BASH = """# bash completion for parityscope, written by: parityscope completion bash
_parityscope() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words=""
    if (( COMP_CWORD == 1 )); then
        words="{verbs}"
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
    case $before in {closed}) return;; esac
    local IFS=$'\\n'  # names of files may hold blanks
    [[ $word == -* ]] || COMPREPLY+=($(compgen -f -- "$word"))
}}
complete -o filenames -F _parityscope parityscope
"""
_ZSH = """#compdef parityscope
# zsh completion for parityscope, written by: parityscope completion zsh
_parityscope() {{
    local word=${{words[CURRENT]}} before=${{words[CURRENT-1]}}
    local -a found
    if (( CURRENT == 2 )); then
        found=({verbs})
        if [[ $word == -* ]]; then compadd -- {alone}; else _describe verb found; _files; fi
        return
    fi
    case $before in
{values}
    esac
    if (( $#found == 0 )) && [[ $word == -* ]]; then
        case ${{words[2]}} in
{options}
        esac
    fi
    compadd -- $found
    case $before in {closed}) return;; esac
    [[ $word == -* ]] || _files
}}
_parityscope "$@"
"""
_FISH = """# fish completion for parityscope, written by: parityscope completion fish
function __parityscope_verb
    set -l typed (commandline -opc)
    set -q typed[2]; or return 1
    string match -q -r -- $argv[1] $typed[2]
end
function __parityscope_before
    contains -- (commandline -opc)[-1] $argv
end
function __parityscope_first
    test (count (commandline -opc)) -eq 1
end
{lines}
"""
_LISTED = ("backends", "checks", "rules", "metrics", "repairs", "formats")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """What can be completed: verbs with a line of help each, the options of each verb, and the words behind options or verbs."""

    verbs: Mapping[str, str]
    options: Mapping[str, Sequence[str]]
    values: Mapping[tuple[str, ...], Sequence[str]]


def command(
    shell: Annotated[str, typer.Argument(help="The shell: bash, zsh or fish.")] = "bash",
    *,
    install: Annotated[bool, typer.Option("--install", help="Put it where new shells find it.")] = False,
) -> int:
    """Prints the script that completes verbs, options and targets in a shell, or installs it."""
    if shell not in _WRITERS:
        raise ParityError(f"there is no completion for {shell!r}", fix=f"use one of: {', '.join(_WRITERS)}")
    script = _WRITERS[shell](_list_words())
    if not install:
        print(script, end="")
        return Exit.WITHIN
    path = _place_of(shell)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, script)
    print(f"{path} is written: new shells complete parityscope", file=sys.stderr)
    _tell_shell(shell, path)
    return Exit.WITHIN


def _place_of(shell: str) -> Path:
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return {
        "bash": data / "bash-completion" / "completions" / "parityscope",
        "zsh": data / "zsh" / "site-functions" / "_parityscope",
        "fish": settings / "fish" / "completions" / "parityscope.fish",
    }[shell]


def _tell_shell(shell: str, path: Path) -> None:
    """Adds the line to a shell's settings that it finds the script by, where it does not look there by itself."""
    if shell == "fish" or (shell == "bash" and Path("/usr/share/bash-completion/bash_completion").is_file()):
        return
    if shell == "bash":
        settings, line = Path.home() / ".bashrc", f"source {shlex.quote(str(path))}"
    else:
        folder = shlex.quote(str(path.parent))
        settings = Path(os.environ.get("ZDOTDIR") or Path.home()) / ".zshrc"
        line = f"fpath=({folder} $fpath); autoload -Uz compinit && compinit"
    held = settings.read_text(encoding="utf-8") if settings.is_file() else ""
    if line not in held.splitlines():
        with settings.open("a", encoding="utf-8") as file:
            file.write(f"{'' if not held or held.endswith(chr(10)) else chr(10)}{line}\n")
        print(f"{settings} has a new line at its end: {line}", file=sys.stderr)


def _list_words() -> _Words:
    from parityscope.backends import known_backends
    from parityscope.cli.shell.app import COMMANDS
    from parityscope.cli.shell.app import command as whole
    from parityscope.languages import LANGUAGES
    from parityscope.report import known_renderers

    commands: Mapping[str, Any] = vars(whole())["commands"]
    targets = ("--candidate", "--reference", "--target", "--before", "--after", "--peer")
    options = {name: _options_of(one) for name, one in sorted(commands.items())}
    return _Words(
        verbs={name: COMMANDS.get(name, "") for name in sorted(commands)},
        options={**options, _MODEL: options["look"]},  # a model alone
        values={
            targets: [*_FORMATS, *sorted(known_backends())],
            ("--formats", "--declared", "--low"): _FORMATS,
            ("--format",): sorted(known_renderers()),
            ("--lang",): sorted(LANGUAGES),
            ("list",): _LISTED,
            ("completion",): list(_WRITERS),
        },
    )


def _options_of(one: Any) -> Sequence[str]:  # typer's own, which has no public types
    return sorted({name for each in one.params for name in each.opts if name.startswith("-")} | {"--help", "--lang"})


def _write_bash(words: _Words) -> str:
    return _BASH.format(
        verbs=" ".join([*words.verbs, *_ALONE]),
        values="\n".join(
            f'            {"|".join(key)}) words="{" ".join(one)}";;' for key, one in words.values.items()
        ),
        options="\n".join(f'                {key}) words="{" ".join(one)}";;' for key, one in words.options.items()),
        closed="|".join(_CLOSED),
    )


def _write_zsh(words: _Words) -> str:
    return _ZSH.format(
        verbs=" ".join(shlex.quote(f"{name}:{text.replace(':', ' -')}") for name, text in words.verbs.items()),
        alone=" ".join(_ALONE),
        values="\n".join(f"        {'|'.join(key)}) found=({' '.join(one)});;" for key, one in words.values.items()),
        options="\n".join(f"            {key}) found=({' '.join(one)});;" for key, one in words.options.items()),
        closed="|".join(_CLOSED),
    )


def _write_fish(words: _Words) -> str:
    lines = [
        f"complete -c parityscope -n __parityscope_first -a {name} -d {_quote_fish(text)}"
        for name, text in words.verbs.items()
    ]
    lines += [f"complete -c parityscope -n __parityscope_first {_fish_option(one)}" for one in _ALONE]
    for verb, options in words.options.items():
        pattern = r"(?i)\.onnx$" if verb == _MODEL else f"^{verb}$"
        condition = _quote_fish(f"__parityscope_verb {_quote_fish(pattern)}")
        lines += [f"complete -c parityscope -n {condition} {_fish_option(one)}" for one in options]
    for key, values in words.values.items():
        closed = " -f" if set(key) <= {*_CLOSED} else ""
        condition = _quote_fish(f"__parityscope_before {' '.join(key)}")
        lines.append(f"complete -c parityscope -n {condition}{closed} -a {_quote_fish(' '.join(values))}")
    return _FISH.format(lines="\n".join(lines))


def _fish_option(name: str) -> str:
    return f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"


def _quote_fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_WRITERS: Mapping[str, Callable[[_Words], str]] = {"bash": _write_bash, "zsh": _write_zsh, "fish": _write_fish}
