"""The page of a large network: its size, how long it takes to write, and its first paint in headless Chromium.

    python bench/page.py [NODES ...]        5,000 and 20,000 where none are given

Of each size five windows are opened in one browser, one after another; the median of their first contentful paints is told. The
names are as long as exporters make them.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "tests")]

from golden import documents  # noqa: E402 from the tests' folder
from parityscope.report.as_html import render_html  # noqa: E402
from proving.browser import open_browser, open_page, run_script  # noqa: E402

_SIZES = (5000, 20000)
_WINDOWS = 5
_PAINTED = """new Promise((done) => new PerformanceObserver((seen) => {
  for (const one of seen.getEntries()) if (one.name === "first-contentful-paint") done(one.startTime);
}).observe({ type: "paint", buffered: true }))"""


def main() -> None:
    sizes = [int(word) for word in sys.argv[1:]] or _SIZES
    print("nodes    written in    size       first paint")
    with open_browser() as browser:
        for nodes in sizes:
            document = documents.large(nodes)
            started = time.perf_counter()
            text = render_html(document)
            seconds = time.perf_counter() - started
            paints = []
            for _ in range(_WINDOWS):
                with open_page(browser, text) as page:
                    paints.append(float(run_script(page, _PAINTED)))
            size = len(text.encode()) / 1e6
            print(f"{nodes:<8,} {seconds:6.2f} s    {size:6.2f} MB   {statistics.median(paints):6.0f} ms", flush=True)


if __name__ == "__main__":
    main()
