"""`parityscope serve`: the studies of a folder in a browser, on this machine unless more is asked for."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parityscope.cli import _options as o
from parityscope.errors import Exit, ParityError

if TYPE_CHECKING:
    from parityscope.server.answering import Served

NAME = "serve"

_TOKEN = "PARITYSCOPE_TOKEN"  # noqa: S105 - the name of a variable
_SHORTEST = 16  # signs of a token; chosen


def command(
    folder: Annotated[Path, typer.Argument(help="The folder that studies lie in, at any depth.")] = Path(),
    *,
    host: Annotated[str, typer.Option(help="The address to listen on; any but this machine's own needs a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.")] = 8765,
    upload: Annotated[str, typer.Option(help="The most that may be uploaded at once, e.g. 2GiB.")] = "2GiB",
) -> int:
    """Shows the studies of a folder in a browser: list, trends, what runs now, two compared, recordings uploaded.

    On this machine it answers the user who started it. The token for anything else is made, or taken from PARITYSCOPE_TOKEN.
    """
    root = folder.resolve()
    if not root.is_dir():
        raise ParityError(f"there is no folder {root}", fix="parityscope serve FOLDER")
    try:
        import python_multipart  # noqa: F401 - forms
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ParityError(f"the server cannot be imported: {error}", fix="pip install 'parityscope[serve]'") from error
    from parityscope.private_folders import scratch_folder
    from parityscope.server.answering import Served, make_ready
    from parityscope.server.guarding import Guard, is_loopback
    from parityscope.server.index import open_index
    from parityscope.server.uploading import Comparisons

    largest = o.size_of(upload)
    token = os.environ.get(_TOKEN, "")
    if token and len(token) < _SHORTEST:
        raise ParityError(f"{_TOKEN} has {len(token)} signs, fewer than {_SHORTEST}", fix="take a longer one")
    listening = _listen(host, port)
    with listening, scratch_folder("serve") as scratch, open_index(root, scratch) as index:
        address = listening.getsockname()[:2]
        if not token and not is_loopback(address[0]):
            token = secrets.token_urlsafe(32)
        guard = Guard(token=token, port=address[1], largest=largest)
        served = Served(root=root, index=index, guard=guard, comparisons=Comparisons(root=root, largest=largest))
        make_ready()
        print(f"http://{_named(host)}:{address[1]}/{f'?token={token}' if token else ''}", flush=True)
        try:
            _answer_requests(served, listening)
        finally:
            served.comparisons.end_all()
    return Exit.WITHIN


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        ParityError: nobody can listen there.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(found[4][:2], family=found[0], backlog=128)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ParityError(f"nobody can listen on {host}:{port}: {reason}", fix="choose another --port") from error


def _named(host: str) -> str:
    """The host as an address has it."""
    return f"[{host}]" if ":" in host else "localhost" if host == "127.0.0.1" else host


def _answer_requests(served: Served, listening: socket.socket) -> None:
    from parityscope.server.answering import make_server

    try:
        make_server(served).run(sockets=[listening])
    except KeyboardInterrupt:  # it has ended in order
        return
