"""Pages in headless Chromium, driven over a pipe as its DevTools protocol has it: loaded, asked, typed into, pictured, checked.

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
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
# axe-core is larger than the whole report and no part of it: a package of the development tools brings it, or AXE_CORE=FILE. The
# package's folder is looked up and not imported: it imports a driver of browsers that is not needed here.
_BROUGHT = find_spec("axe_playwright_python")
_PLACES = [
    *([Path(os.environ["AXE_CORE"])] if "AXE_CORE" in os.environ else []),
    *(Path(folder) / "axe.min.js" for folder in (_BROUGHT and _BROUGHT.submodule_search_locations) or ()),
]
AXE = next((place for place in _PLACES if place.is_file()), None)
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
    try:
        with open_window(browser) as page:
            set_window(page, width=width, height=height, dark=dark, media=media)
            if before:
                _ask(browser, "Page.addScriptToEvaluateOnNewDocument", page.session, source=before)
            open_address(page, f"{file.as_uri()}{query}")
            yield page
    finally:
        file.unlink()


@contextlib.contextmanager
def open_window(browser: Browser) -> Iterator[Page]:
    """An empty window, for addresses."""
    target = _ask(browser, "Target.createTarget", url="about:blank")["targetId"]
    session = _ask(browser, "Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    try:
        _ask(browser, "Page.enable", session)
        _ask(browser, "Emulation.setFocusEmulationEnabled", session, enabled=True)
        yield Page(browser=browser, target=target, session=session)
    finally:
        _ask(browser, "Target.closeTarget", targetId=target)


def set_window(page: Page, *, width: int, height: int, dark: bool = False, media: str = "") -> None:
    """How large the window is, whether its colours are dark, and whether it is paper ("print")."""
    colours = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    still = {"name": "prefers-reduced-motion", "value": "reduce"}
    _ask(
        page.browser, "Emulation.setDeviceMetricsOverride", page.session,
        width=width, height=height, deviceScaleFactor=1, mobile=False,
    )  # fmt: skip
    _ask(page.browser, "Emulation.setEmulatedMedia", page.session, media=media, features=[colours, still])


def open_address(page: Page, address: str) -> None:
    """Opens an address, and ends when it has loaded."""
    _forget_loads(page)
    _ask(page.browser, "Page.navigate", page.session, url=address)
    _await_event(page.browser, "Page.loadEventFired", page.session)


def follow_link(page: Page, script: str) -> None:
    """Does what opens another page, and ends when that has loaded."""
    _forget_loads(page)
    run_script(page, script)
    _await_event(page.browser, "Page.loadEventFired", page.session)


def choose_file(page: Page, selector: str, *files: Path) -> None:
    """Puts files into the file field that a selector finds."""
    root = _ask(page.browser, "DOM.getDocument", page.session)["root"]["nodeId"]
    node = _ask(page.browser, "DOM.querySelector", page.session, nodeId=root, selector=selector)["nodeId"]
    _ask(page.browser, "DOM.setFileInputFiles", page.session, nodeId=node, files=[str(file) for file in files])


def find_violations(page: Page) -> list[Any]:
    """What axe-core finds to mend on the page: each rule with the elements that break it.

    Raises:
        FileNotFoundError: there is no axe-core.
    """
    if AXE is None:
        raise FileNotFoundError("no axe-core: make develop, or AXE_CORE=path/to/axe.min.js")
    run_script(page, f"{AXE.read_text(encoding='utf-8')}; 0")  # beside the page's own policy
    told = "one => [one.id, one.nodes.map(node => node.html.slice(0, 160))]"
    asked = f"axe.run(document, {{resultTypes: ['violations']}}).then(found => found.violations.map({told}))"
    return list(run_script(page, asked))


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


def _forget_loads(page: Page) -> None:
    kept = [one for one in page.browser.events if one.get("method") != "Page.loadEventFired"]
    page.browser.events.clear()
    page.browser.events.extend(kept)


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
