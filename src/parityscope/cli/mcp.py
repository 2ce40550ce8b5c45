"""`parityscope mcp`: the verbs as tools of a language model, over stdin and stdout, in the Model Context Protocol's own SDK.

Each call runs a command in a process of its own, as somebody would type it: a runtime that crashes or takes all memory takes no
server with it, and a call that is given up is ended. What comes back is the first screen, and where study and report lie.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, cast

import typer

from parityscope.cli.shell.progress import PROGRESS_LINE, PROGRESS_VARIABLE
from parityscope.errors import Exit, ParityError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from parityscope.cli.shell.tools import CallBounds

NAME = "mcp"

_INSTRUCTIONS = (
    "Parityscope tells why a deployed neural network disagrees with the original. Start with lint or predict where nothing is "
    "deployed yet, with compare or diagnose where there is a deployment; explain tells what a code means. Paths are below the "
    "server's root."
)
_TOLD = {
    0: "within, or done",
    1: "beyond, worse, or a cause was found",
    3: "something that was asked for was not judged",
}
_HEARTBEAT_S = 5.0  # between two words of progress at most; chosen
_MOST = 20_000  # characters of an answer, chosen: the rest is in the report


def command(
    *,
    root: Annotated[Path, typer.Option(help="The folder that calls may read and write.")] = Path(),
    allow_code: Annotated[
        bool, typer.Option("--allow-code", help="Let calls name programs, Python functions and other machines.")
    ] = False,
) -> int:
    """Serves the verbs as tools to an assistant, over stdin and stdout (Model Context Protocol; docs/teams.md)."""
    from parityscope.cli.shell.tools import CallBounds

    root = root.resolve()
    if not root.is_dir():
        raise ParityError(f"there is no folder {root}", fix="parityscope mcp --root FOLDER")
    os.chdir(root)
    asyncio.run(_serve(CallBounds(root=root, allow_code=allow_code)))
    return Exit.WITHIN


async def _serve(bounds: CallBounds) -> None:
    try:
        import anyio
        from mcp import types
        from mcp.server.lowlevel import Server
        from mcp.server.stdio import stdio_server
    except ImportError as error:
        raise ParityError(f"the SDK cannot be imported: {error}", fix="pip install 'parityscope[mcp]'") from error
    from parityscope.cli.shell.tools import known_tools, schema_of_tool
    from parityscope.version import __version__

    async def list_tools(context: Any, asked: Any) -> Any:  # the SDK's own records, which are not here where it is not
        del context, asked
        found = [
            types.Tool(name=name, description=tool.told, input_schema=schema_of_tool(tool))
            for name, tool in known_tools().items()
        ]
        return types.ListToolsResult(tools=found)

    async def call_tool(context: Any, asked: Any) -> Any:
        failed, text = await _answer_call(asked.name, asked.arguments or {}, bounds, context.session.report_progress)
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=failed)

    server: Any = Server(
        "parityscope",
        version=__version__,
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    stdin, stdout = sys.__stdin__, sys.__stdout__
    if stdin is None or stdout is None:
        raise ParityError("stdin or stdout is closed", fix="let the assistant start it: parityscope mcp --root FOLDER")
    # Descriptors of their own: what is closed behind the last call is not what the command ends with.
    with _opened_again(stdin, "r") as asking, _opened_again(stdout, "w") as telling:
        async with stdio_server(anyio.wrap_file(asking), anyio.wrap_file(telling)) as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())


def _opened_again(stream: TextIO, mode: str) -> TextIO:
    return cast("TextIO", os.fdopen(os.dup(stream.fileno()), mode, encoding="utf-8"))


async def _answer_call(
    name: str, given: dict[str, Any], bounds: CallBounds, report: Callable[..., Awaitable[None]]
) -> tuple[bool, str]:
    """Whether the call failed, and its text: the first screen and what was written, or the error with its fix."""
    from parityscope.cli.shell.tools import words_of_call

    try:
        words, study = words_of_call(name, given, bounds)
    except (ParityError, OSError) as error:
        return True, f"parityscope: {error}"
    status, out, told = await _run_words(words, bounds, report)
    if status not in _TOLD:
        return True, told or f"parityscope: {name} ended with {status}"
    lines = [out.rstrip() if len(out) <= _MOST else f"{out[:_MOST]} ... (cut; the rest is in the report)", ""]
    lines.append(f"Exit code {status}: {_TOLD[status]}")
    if study and (bounds.root / study / "report.html").exists():
        lines += [f"Study: {bounds.root / study}", f"Report: {bounds.root / study / 'report.html'}"]
    elif study:
        lines.append(f"Studies: {bounds.root / study}")
    elif output := given.get("output"):
        lines.append(f"Written: {bounds.root / output}")
    return False, "\n".join(lines)


async def _run_words(
    words: list[str], bounds: CallBounds, report: Callable[..., Awaitable[None]]
) -> tuple[int, str, str]:
    """Runs a command in the root: its exit code, what it prints, and what it tells on stderr besides progress."""
    child = await asyncio.create_subprocess_exec(
        # -P: no .py file of the root takes the place of a module.
        *(sys.executable, "-P", "-m", "parityscope", *words),
        cwd=bounds.root,
        env={**os.environ, PROGRESS_VARIABLE: "lines", "NO_COLOR": "1"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 20,
    )
    assert child.stdout is not None  # noqa: S101 - both were asked for
    assert child.stderr is not None  # noqa: S101
    printing = asyncio.ensure_future(child.stdout.read())
    try:
        told = await _follow_progress(child.stderr, words[0], report)
        out = (await printing).decode("utf-8", "replace")
        return await child.wait(), out, "\n".join(told)
    finally:
        printing.cancel()
        if child.returncode is None:  # the call was given up
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
            await asyncio.shield(child.wait())


async def _follow_progress(
    stream: asyncio.StreamReader, verb: str, report: Callable[..., Awaitable[None]]
) -> list[str]:
    """Reports progress as it is told, and at least now and then; gives the other lines."""
    started, said = time.monotonic(), 0.0
    told: list[str] = []
    what = verb
    line = asyncio.ensure_future(stream.readline())
    while True:
        done, _ = await asyncio.wait({line}, timeout=_HEARTBEAT_S)
        if done:
            text = line.result().decode("utf-8", "replace")
            if not text:
                return told
            if text.startswith(PROGRESS_LINE):
                what = text.removeprefix(PROGRESS_LINE).strip()
            else:
                told.append(text.rstrip())
            line = asyncio.ensure_future(stream.readline())
        passed = time.monotonic() - started
        if passed > said:  # what is reported must grow
            said = passed
            await report(passed, None, what)
