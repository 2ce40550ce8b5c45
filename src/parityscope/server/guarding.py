"""Who may ask the server, and what a browser may do with its pages.

Three kinds of strangers are kept out. **Other machines**: they need the token. **Other users of this machine**: on
loopback without a token only the user who started the server and root are answered, told apart by the kernel's table of
connections. **Other sites in the user's own browser**: the Host must be one of ours (a name that is rebound to
127.0.0.1 is not), what changes anything needs an Origin that is our own and a form's token that only our pages hold,
the cookie is SameSite=Strict, and what another site embeds is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode

from parityscope.light_dataclasses import dataclass, field
from parityscope.report.studies import refusal_page

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, MutableMapping
    from typing import Any

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
_LOOPBACK_NAMES = {"localhost", "127.0.0.1", "[::1]"}
_CLOSED = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # With no-referrer a browser says "Origin: null" in our own forms.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """What is asked of a request: `token` of everybody, where there is one; else that it comes from this user, on loopback.

    `largest` are the bytes that a request may have.
    """

    token: str
    port: int
    largest: int
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    @property
    def cookie(self) -> str:
        """The name of our cookie: cookies are shared between the ports of a host."""
        return f"parityscope-{self.port}"

    def sign(self, what: str) -> str:
        """What only this process can say of `what`."""
        return hmac.new(self.key, what.encode(), hashlib.sha256).hexdigest()

    def new_session(self) -> str:
        """The value of a cookie for somebody who may ask."""
        name = secrets.token_hex(16)
        return f"{name}.{self.sign(f'session {name}')}"

    def is_session(self, value: str) -> bool:
        """Whether we gave this cookie."""
        name, _, signed = value.partition(".")
        return hmac.compare_digest(signed.encode(), self.sign(f"session {name}").encode())

    def form_token(self, session: str) -> str:
        """What a form must bring along that one of our pages gave to this session."""
        return self.sign(f"form {session}")


def guard_app(app: App, guard: Guard) -> App:
    """`app` for those who may ask; `scope["session"]` is the session of the one who does."""

    async def guarded(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        hosts = [value for name, value in scope["headers"] if name.lower() == b"host"]
        status, why = _refusal_of(guard, scope, headers, len(hosts))
        session, new = _session_of(guard, scope, headers)
        asked = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))
        if not status and not session:
            status, why = 401, "a token is needed: open the address that parityscope serve printed"
        if not status and scope["method"] == "POST":
            status, why = _refusal_of_form(guard, headers, session, asked.get("form", ""))
        closing = _with_headers(send, {"Set-Cookie": _cookie(guard, session)} if new and not status else {})
        if status:
            await _answer_page(closing, status, refusal_page(status, why))
        elif "token" in asked and guard.token:  # out of the address, which others see and histories keep
            await _send_elsewhere(
                closing, scope["path"], {name: each for name, each in asked.items() if name != "token"}
            )
        else:
            scope["session"] = session
            await app(scope, receive, closing)

    return guarded


def is_loopback(address: str) -> bool:
    """Whether an address of a connection is of this machine."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address == "localhost"
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def owner_of_peer(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """The user whose process holds the other end of a connection within this machine; None where the kernel does not say."""
    for name, width in (("tcp", 4), ("tcp6", 16)):
        wanted = [_as_in_table(end, width) for end in (client, server)]
        try:
            lines = Path(f"/proc/self/net/{name}").read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            parts = line.split()
            if len(parts) > 7 and parts[1:3] == wanted:
                return int(parts[7])
    return None


def _as_in_table(end: tuple[str, int], width: int) -> str:
    """An address as /proc/net/tcp and tcp6 write it: words of four bytes in the machine's order, in hexadecimal."""
    try:
        found = ip_address(end[0].partition("%")[0])
    except ValueError:
        return ""
    raw = found.packed
    if len(raw) < width:
        raw = bytes(10) + b"\xff\xff" + raw
    if len(raw) > width:
        mapped = getattr(found, "ipv4_mapped", None)
        if mapped is None:
            return ""
        raw = mapped.packed
    words = (int.from_bytes(raw[at : at + 4], "little") for at in range(0, len(raw), 4))
    return f"{''.join(f'{word:08X}' for word in words)}:{end[1]:04X}"


def _refusal_of(guard: Guard, scope: Mapping[str, Any], headers: Mapping[str, str], hosts: int) -> tuple[int, str]:
    """Why nobody at all is answered so, with its status; (0, "") where somebody may be."""
    host = _HOST.fullmatch(headers.get("host", ""))
    if hosts != 1 or host is None or (not guard.token and host.group(1).lower() not in _LOOPBACK_NAMES):
        return 400, "this server has no such name: open it as localhost"
    if scope["method"] not in {"GET", "HEAD", "POST"}:
        return 405, "there is nothing here that is asked so"
    if not guard.token:
        client, server = scope.get("client") or ("", 0), scope.get("server") or ("", 0)
        if not is_loopback(client[0]) or owner_of_peer(tuple(client), tuple(server)) not in {0, os.geteuid()}:
            return 403, "without a token only the user who started the server is answered: set PARITYSCOPE_TOKEN"
    site = headers.get("sec-fetch-site", "none")
    opened = (scope["method"], headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == (
        *("GET", "navigate", "document"),
    )
    if site not in {"none", "same-origin"} and not opened:
        return 403, "another site asked for this"
    if scope["method"] == "POST":
        length = headers.get("content-length", "")
        if "transfer-encoding" in headers or not re.fullmatch("[0-9]{1,15}", length):
            return 411, "how much is sent must be said"
        if int(length) > guard.largest:
            return 413, f"more is sent than the {guard.largest >> 20} MiB that this server takes"
    return 0, ""


def _refusal_of_form(guard: Guard, headers: Mapping[str, str], session: str, form: str) -> tuple[int, str]:
    host = headers.get("host", "")
    if headers.get("origin") not in {f"http://{host}", f"https://{host}"}:
        return 403, "another site sent this form"
    if not hmac.compare_digest(form.encode(), guard.form_token(session).encode()):
        return 403, "this form is of an earlier start of the server: open the page again"
    return 0, ""


def _session_of(guard: Guard, scope: Mapping[str, Any], headers: Mapping[str, str]) -> tuple[str, bool]:
    """The session of who asks ("" for nobody), and whether it is a new one."""
    try:
        held = SimpleCookie(headers.get("cookie", "")).get(guard.cookie)
    except CookieError:
        held = None
    if held is not None and guard.is_session(held.value):
        return held.value, False
    if not guard.token:
        return guard.new_session(), True
    given = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1"))).get("token", "")
    bearer = headers.get("authorization", "").removeprefix("Bearer ")
    right = guard.token.encode()
    if any([hmac.compare_digest(one.encode(), right) for one in (given, bearer)]):  # noqa: C419 - both, in any case
        return guard.new_session(), True
    return "", False


def _cookie(guard: Guard, session: str) -> str:
    return f"{guard.cookie}={session}; Path=/; HttpOnly; SameSite=Strict"


def _with_headers(send: Send, more: Mapping[str, str]) -> Send:
    """`send` that says of every answer what a browser may do with it, unless the answer says so itself."""

    async def closing(message: Message) -> None:
        if message["type"] == "http.response.start":
            said = {name.decode("latin-1").lower() for name, _ in message.get("headers", [])}
            added = [
                (name.lower().encode("latin-1"), value.encode("latin-1"))
                for name, value in {**_CLOSED, **more}.items()
                if name.lower() not in said
            ]
            message = {**message, "headers": [*message.get("headers", []), *added]}
        await send(message)

    return closing


async def _answer_page(send: Send, status: int, page: tuple[str, str]) -> None:
    text, policy = page
    body = text.encode("utf-8")
    headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"content-security-policy", policy.encode("latin-1")),
        (b"connection", b"close"),  # what was sent along is not read
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _send_elsewhere(send: Send, path: str, asked: Mapping[str, str]) -> None:
    place = f"/{quote(path.lstrip('/'))}" + (f"?{urlencode(asked)}" if asked else "")
    headers = [(b"location", place.encode("ascii")), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
