"""A real browser, headless, told what to do over a pipe (Chrome DevTools Protocol): pages of a server, as people see them."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

# axe-core is larger than the whole report and no part of it: a package of the development tools brings it, or AXE_CORE=FILE.
BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
# Its folder is looked up and not imported: it imports a driver of browsers that is not needed here.
BROUGHT = find_spec("axe_playwright_python")
PLACES = [Path(os.environ["AXE_CORE"])] if "AXE_CORE" in os.environ else []
PLACES += [Path(folder) / "axe.min.js" for folder in (BROUGHT and BROUGHT.submodule_search_locations) or ()]
AXE = next((place for place in PLACES if place.is_file()), None)


@dataclass(slots=True)
class Tab:
    """A page of the browser: what is asked of it ends when it has happened."""

    asking: int
    telling: int
    session: str = ""
    number: int = 0
    rest: bytes = b""
    events: list[dict[str, Any]] = field(default_factory=list)

    def ask(self, method: str, **given: Any) -> dict[str, Any]:
        """What the browser answers."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": given}
        if self.session:
            message["sessionId"] = self.session
        sent = json.dumps(message).encode() + b"\0"
        while sent:
            sent = sent[os.write(self.asking, sent) :]
        while True:
            told = self._next_message()
            if told.get("id") == self.number:
                assert "error" not in told, told
                return told["result"]  # type: ignore[no-any-return]
            self.events.append(told)

    def wait_for(self, method: str) -> dict[str, Any]:
        """The next event of that name."""
        while True:
            found = next((one for one in self.events if one.get("method") == method), None)
            if found is not None:
                self.events.remove(found)
                return found["params"]  # type: ignore[no-any-return]
            self.events.append(self._next_message())

    def open(self, address: str) -> None:
        """Opens a page, and ends when it has loaded."""
        self._forget_loads()
        self.ask("Page.navigate", url=address)
        self.wait_for("Page.loadEventFired")

    def follow(self, script: str) -> None:
        """Does what opens another page, and ends when that has loaded."""
        self._forget_loads()
        self.value(script)
        self.wait_for("Page.loadEventFired")

    def value(self, script: str) -> Any:
        """What a script gives in the page; a promise is waited for."""
        found = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def choose_file(self, selector: str, *files: Path) -> None:
        """Puts files into the file field that a selector finds."""
        root = self.ask("DOM.getDocument")["root"]["nodeId"]
        node = self.ask("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.ask("DOM.setFileInputFiles", nodeId=node, files=[str(file) for file in files])

    def look(self, *, width: int, height: int, dark: bool = False) -> None:
        """How wide the window is, and whether it is dark."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path: Path) -> None:
        """The whole page as a PNG."""
        found = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def violations(self) -> list[Any]:
        """What axe-core finds to mend on the page; it comes in beside the page's own policy."""
        assert AXE is not None
        self.value(AXE.read_text(encoding="utf-8") + "\n;0")
        told = "one => [one.id, one.nodes.map(node => node.html.slice(0, 160))]"
        return self.value(  # type: ignore[no-any-return]
            f"axe.run(document, {{resultTypes: ['violations']}}).then(found => found.violations.map({told}))"
        )

    def _forget_loads(self) -> None:
        self.events = [one for one in self.events if one.get("method") != "Page.loadEventFired"]

    def _next_message(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            block = os.read(self.telling, 1 << 16)
            assert block, "the browser has ended"
            self.rest += block
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)  # type: ignore[no-any-return]


@contextlib.contextmanager
def opened_tab(profile: Path) -> Iterator[Tab]:
    """A page of a browser that was started for it."""
    assert BROWSER is not None
    their_in, asking = os.pipe()
    telling, their_out = os.pipe()
    words = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-pipe",
        f"--user-data-dir={profile}", "about:blank",
    ]  # fmt: skip
    # The browser reads from its descriptor 3 and writes to 4; both are moved out of the way of each other first.
    plumbing = f'exec 8<&{their_in} 9>&{their_out}; exec 3<&8 4>&9 8<&- 9>&-; exec "$@"'
    process = subprocess.Popen(
        ["bash", "-c", plumbing, "bash", *words],
        pass_fds=(their_in, their_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(their_in)
    os.close(their_out)
    try:
        tab = Tab(asking, telling)
        target = tab.ask("Target.createTarget", url="about:blank")["targetId"]
        tab.session = tab.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab.ask("Page.enable")
        yield tab
    finally:
        os.close(asking)
        os.close(telling)
        process.terminate()
        process.wait(timeout=60)
