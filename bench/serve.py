"""How long `parityscope serve` takes over a folder of many studies: `python bench/serve.py [studies] [places]`.

Makes studies of that many tensors, reads them into an index from nothing, and asks for pages; seconds of processor.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from golden import documents
from parityscope.report.studies import list_page, trends_page
from parityscope.server.index import list_series, list_studies, open_index

_TENSORS = 50


def make_studies(root: Path, count: int) -> None:
    """Writes `count` studies of 50 models."""
    document: dict[str, Any] = documents.detector(_TENSORS)
    document["model"]["name"], document["created"] = "MODEL", "2026-NUMBER"
    text = json.dumps(document)
    for number in range(count):
        folder = root / str(number % 100) / f"s{number:06d}"
        folder.mkdir(parents=True)
        told = text.replace("MODEL", f"model-{number % 50}").replace("2026-NUMBER", f"2026-{number:06d}")
        (folder / "study.json").write_text(told, encoding="utf-8")


def main() -> None:
    """Prints one line for each measurement."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as place:
        os.environ["XDG_CACHE_HOME"] = str(Path(place, "cache"))
        root, scratch = Path(place, "studies"), Path(place)
        make_studies(root, count)
        for what in ("read from nothing", "held against the folder, nothing changed"):
            began = time.process_time()
            with open_index(root, scratch) as index:
                while not index.whole:
                    time.sleep(0.01)
                print(f"{count} studies {what}: {time.process_time() - began:.2f} s")
        with open_index(root, scratch) as index:
            for what in ("first", "again"):
                began = time.process_time()
                rows, whole = list_studies(index, {}, first=0, most=50)
                live: dict[str, Any] = {"doing": [], "read": 0, "wanted": 0, "newest": 0}
                list_page(str(root), rows, {}, paging=(1, 50, whole), live=live, before=None)
                print(f"the list, {what}: {time.process_time() - began:.3f} s")
            began = time.process_time()
            series, whole = list_series(index, first=0, most=25, points=40)
            trends_page(str(root), series, paging=(1, 25, whole))
            print(f"25 trends: {time.process_time() - began:.3f} s")
            began = time.process_time()
            found = list_studies(index, {"words": "model-7 s00"}, first=0, most=50)[1]
            print(f"a search that finds {found}: {time.process_time() - began:.3f} s")


if __name__ == "__main__":
    main()
