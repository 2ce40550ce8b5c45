"""The notebook of the documentation, run as Jupyter runs it, in a kernel of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

NOTEBOOK = Path(__file__).parent.parent / "docs" / "notebook.ipynb"


@pytest.mark.story
def test_the_notebook_runs_from_its_first_cell_to_its_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    held = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(held)
    assert not any(cell.get("outputs") for cell in held.cells)  # what it gives is made here, and never old
    nbclient.NotebookClient(held, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    told = [
        "".join(str(out.get("text", out.get("data", {}).get("text/plain", ""))) for out in cell.outputs)
        for cell in held.cells
        if cell.cell_type == "code"
    ]
    assert "[RNG002, cause proved]" in told[1]
    assert "'RNG002'" in told[2]
    assert "<!doctype html" in told[3].lower() or "<iframe" in told[3].lower()
    assert told[4].startswith("✓ ")
