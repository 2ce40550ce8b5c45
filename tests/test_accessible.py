"""The pages under axe-core, an independent checker of accessibility, in headless Chromium: it finds nothing to mend.

axe-core is larger than the whole report and no part of it: a package of the development tools brings it, or
AXE_CORE=path/to/axe.min.js.
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from browser import AXE, BROWSER
from golden import documents
from parityscope.report import as_html

if TYPE_CHECKING:
    from pathlib import Path

PROBE = """<script>
addEventListener("load", () => axe.run(document, { resultTypes: ["violations"] }).then((found) => {
  const told = (one) => [one.id, one.nodes.map((node) => node.html.slice(0, 160))];
  document.body.dataset.violations = JSON.stringify(found.violations.map(told));
}));
</script>"""


@pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome on PATH")
@pytest.mark.skipif(AXE is None, reason="no axe-core: make develop, or AXE_CORE=path/to/axe.min.js")
@pytest.mark.parametrize("name", ["detector", "within", "incomplete"])
def test_axe_finds_nothing_on_the_page(name: str, tmp_path: Path) -> None:
    assert BROWSER is not None
    assert AXE is not None
    page = as_html.render_html(getattr(documents, name)())
    checker = f"<script>{AXE.read_text(encoding='utf-8')}</script>"
    file = tmp_path / "page.html"
    head, _, tail = page.rpartition("</body>")
    file.write_text(f"{head}{checker}{PROBE}</body>{tail}", encoding="utf-8")
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
        f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1280,2400", "--virtual-time-budget=20000",
        "--dump-dom", file.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    _, _, rest = done.stdout.partition('data-violations="')
    found = rest.partition('"')[0].replace("&quot;", '"').replace("&lt;", "<").replace("&gt;", ">")
    assert json.loads(found.replace("&amp;", "&")) == []
