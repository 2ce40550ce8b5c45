"""Pages in headless Chromium, driven over a pipe as its DevTools protocol has it: loaded, asked, typed into, and pictured.

Nothing beside Chromium is needed, and no port is opened. A browser is started once for many pages; each page is a window of its
own, of the size and the colours that are asked for.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BROWSER", "Browser", "Page", "open_browser", "open_page", "press_key", "run_script", "take_picture"]

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
_PATIENCE = (
    240.0  # seconds for an answer: a machine that does much else is slow, and a browser that has died never answers
)
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--force-color-profile=srgb", "--font-render-hinting=none", "--remote-debugging-pipe",
)  # fmt: skip
_KEYS = {
    "Tab": ("Tab", 9), "Enter": ("Enter", 13), "Space": (" ", 32), "ArrowLeft": ("ArrowLeft", 37), "ArrowUp": ("ArrowUp", 38),
    "ArrowRight": ("ArrowRight", 39), "ArrowDown": ("ArrowDown", 40), "End": ("End", 35), "Home": ("Home", 36),
}  # fmt: skip
_TYPED = {"Enter": "\r", "Space": " "}


@dataclass(slots=True, kw_only=True)
class Browser:
    """A running Chromium and the two ends of its pipe; `events` are those that nobody has asked for yet."""

    sending: int
    receiving: int
    folder: Path
    count: int = 0
    rest: bytes = b""
    events: deque[dict[str, Any]] = field(default_factory=deque)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page that is open; `session` is how the browser calls it."""

    browser: Browser
    target: str
    session: str


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    """A Chromium of its own, with nothing of another one's; it ends with the block.

    Raises:
        FileNotFoundError: there is none on PATH.
    """
    if BROWSER is None:
        raise FileNotFoundError("no chromium, chromium-browser or google-chrome on PATH")
    with tempfile.TemporaryDirectory(prefix="parityscope-browser-", ignore_cleanup_errors=True) as folder:
        to_browser, sending = os.pipe()
        receiving, from_browser = os.pipe()
        command = [BROWSER, *_FLAGS, f"--user-data-dir={folder}/profile"]
        # Chromium reads from descriptor 3 and writes to 4; a shell puts them there.
        place = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        process = subprocess.Popen(
            ["bash", "-c", place, "bash", *command],
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        browser = Browser(sending=sending, receiving=receiving, folder=Path(folder))
        try:
            yield browser
        finally:
            with contextlib.suppress(OSError):
                _ask(browser, "Browser.close")
            os.close(sending)
            os.close(receiving)
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def open_page(
    browser: Browser,
    text: str,
    *,
    width: int = 1280,
    height: int = 800,
    dark: bool = False,
    media: str = "",
    before: str = "",
    query: str = "",
) -> Iterator[Page]:
    """The page `text`, loaded into a window of that size; `before` is a script that runs before the page's own.

    `query` stands behind its address ("?node=3"), and `media` is "print" for the style of paper.
    """
    file = browser.folder / f"page-{browser.count}.html"
    file.write_text(text, encoding="utf-8")
    target = _ask(browser, "Target.createTarget", url="about:blank")["targetId"]
    session = _ask(browser, "Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    page = Page(browser=browser, target=target, session=session)
    try:
        colours = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        _ask(browser, "Page.enable", session)
        _ask(
            browser, "Emulation.setDeviceMetricsOverride", session,
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        _ask(browser, "Emulation.setEmulatedMedia", session, media=media, features=[colours, still])
        _ask(browser, "Emulation.setFocusEmulationEnabled", session, enabled=True)
        if before:
            _ask(browser, "Page.addScriptToEvaluateOnNewDocument", session, source=before)
        _ask(browser, "Page.navigate", session, url=f"{file.as_uri()}{query}")
        _await_event(browser, "Page.loadEventFired", session)
        yield page
    finally:
        _ask(browser, "Target.closeTarget", targetId=target)
        file.unlink()


def run_script(page: Page, script: str) -> Any:
    """What an expression, or a promise of one, is in the page; as plain data.

    Raises:
        RuntimeError: it throws.
    """
    found = _ask(
        page.browser, "Runtime.evaluate", page.session, expression=script, awaitPromise=True, returnByValue=True
    )  # fmt: skip
    if thrown := found.get("exceptionDetails"):
        raise RuntimeError(thrown.get("exception", {}).get("description") or thrown["text"])
    return found["result"].get("value")


def press_key(page: Page, *keys: str, shift: bool = False) -> None:
    """Presses keys one after another, as a keyboard does: "Tab", "Enter", "ArrowRight", or a character."""
    for key in keys:
        name, code = _KEYS.get(key, (key, ord(key[0].upper())))
        typed = _TYPED.get(key, "" if key in _KEYS else key)
        held = {"key": name, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        _ask(
            page.browser, "Input.dispatchKeyEvent", page.session,
            type="keyDown" if typed else "rawKeyDown", **held, **({"text": typed} if typed else {}),
        )  # fmt: skip
        _ask(page.browser, "Input.dispatchKeyEvent", page.session, type="keyUp", **held)


def take_picture(page: Page, *, whole: bool = False) -> bytes:
    """What is to be seen in the window as PNG, or with `whole` all of the page."""
    found = _ask(page.browser, "Page.captureScreenshot", page.session, format="png", captureBeyondViewport=whole)
    return base64.b64decode(found["data"])


def _ask(browser: Browser, method: str, session: str = "", **values: Any) -> dict[str, Any]:
    """The browser's answer.

    Raises:
        OSError: the browser has ended, or does not answer.
        RuntimeError: it cannot do that.
    """
    browser.count += 1
    number = browser.count
    message = {"id": number, "method": method, "params": values, **({"sessionId": session} if session else {})}
    data = json.dumps(message).encode() + b"\0"
    while data:
        data = data[os.write(browser.sending, data) :]
    while True:
        answer = _next_message(browser)
        if answer.get("id") == number:
            if problem := answer.get("error"):
                raise RuntimeError(f"{method}: {problem['message']}")
            return dict(answer["result"])
        browser.events.append(answer)


def _await_event(browser: Browser, method: str, session: str) -> None:
    while True:
        found = browser.events.popleft() if browser.events else _next_message(browser)
        if found.get("method") == method and found.get("sessionId") == session:
            return


def _next_message(browser: Browser) -> dict[str, Any]:
    while b"\0" not in browser.rest:
        ready, _, _ = select.select([browser.receiving], [], [], _PATIENCE)
        if not ready:
            raise TimeoutError("the browser does not answer")
        data = os.read(browser.receiving, 1 << 20)
        if not data:
            raise ConnectionError("the browser has ended")
        browser.rest += data
    line, _, browser.rest = browser.rest.partition(b"\0")
    return dict(json.loads(line))
