"""What lint found -> text | json | html: the page of `parityscope lint`.

`lint_document` makes the strict-JSON mapping that everything else is drawn from. All of it is pure.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from parityscope.records import ROLES
from parityscope.report._console import print_head, print_heading, print_paragraph
from parityscope.report._page import TEMPLATES
from parityscope.report._plain import document_head, plain_items
from parityscope.report.forms import Forms, Page
from parityscope.report.listed import print_listed, print_skipped, view_listed
from parityscope.report.words import clean, format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from parityscope.linting import Lint

_VERDICTS = {
    "beyond": ("\N{MULTIPLICATION X}", "will break"),
    "within": ("\N{CHECK MARK}", "nothing in the file breaks it"),
    "open": ("?", "whether it breaks depends on the data"),
    "incomplete": ("?", "not all of it could be read"),
}
_TITLES = {"f16": "FP16", "bf16": "BF16", "f8e4m3": "FP8 E4M3", "f8e5m2": "FP8 E5M2", "tf32": "TF32", "f32": "FP32"}


def lint_document(found: Lint, *, command: str = "") -> dict[str, Any]:
    """Everything that lint says, as plain data; `findings` have the shape that a study's have.

    `verdict` is "beyond" with a cause, "incomplete" without one if a constant could not be read, else "within".
    """
    sheet = found.sheet
    return plain_items(
        {
            **document_head(command, kind="lint"),
            "verdict": "beyond" if found.broken else "incomplete" if found.skipped else "within",
            "model": {
                "name": sheet.path.stem,
                "path": str(sheet.path),
                "nbytes": sheet.nbytes,
                "nodes": len(sheet.places),
                "constants": len(sheet.constants),
                "opsets": {domain or "ai.onnx": int(opset) for domain, opset in sheet.model.opset_imports.items()},
                "ir_version": int(sheet.model.ir_version or 0),
                "producer": " ".join(
                    part for part in (sheet.model.producer_name, sheet.model.producer_version) if part
                ),
                "computes_in": sorted(sheet.typed),
            },
            "formats": [each.name for each in sheet.formats],
            "counts": {role: sum(one.role == role for one in found.findings) for role in ROLES},
            # Details are read-only mappings, which asdict cannot copy.
            "findings": [asdict(replace(one, details=dict(one.details))) for one in found.findings],
            "skipped": found.skipped,
        }
    )


def _view_lint(document: Mapping[str, Any]) -> dict[str, Any]:
    """What a page or a terminal shows of a lint document."""
    model = document["model"]
    # A tick would deny what stands below it.
    is_open = document["verdict"] == "within" and document["counts"]["contributing"]
    symbol, label = _VERDICTS["open" if is_open else document["verdict"]]
    listed = view_listed(document)
    causes = listed["causes"]
    formats = ", ".join(_TITLES.get(name, name) for name in document["formats"])
    return {
        **listed,
        "model": clean(model["name"]),
        "verdict": document["verdict"],
        "symbol": symbol,
        "label": f"{label}: {formats}",
        "headline": causes[0]["claim"] if causes else _headline_without_cause(document["counts"]),
        "about": f"{format_bytes(model['nbytes'])}, {format_count(model['nodes'])} nodes, "
        f"{format_count(model['constants'])} constants; "
        "it was read, not run: what only a run would show (an index outside, sizes that do not fit) is not seen here",
        "counts": {role: format_count(number) for role, number in document["counts"].items()},
    }


def _headline_without_cause(counts: Mapping[str, int]) -> str:
    if counts["contributing"]:
        return "No cause in the file; what depends on the data or the converter is listed below."
    return "No cause in the file."


def _print_lint(console: Console, model: Mapping[str, Any]) -> None:
    """Writes the view of what lint found."""
    print_head(console, model, [f"{model['model']}: {model['about']}"])
    print_listed(console, "Cause" if len(model["causes"]) < 2 else "Causes", model["causes"])
    print_listed(console, "Depends on data or converter", model["contributing"])
    if model["information"]:
        print_heading(console, "Information")
    for finding in model["information"]:
        print_paragraph(console, f"{finding['code']}  {finding['claim']}")
    print_skipped(console, "What was not examined", model["skipped"])


FORMS = Forms(title="lint", view=_view_lint, show=_print_lint, page=Page(template=TEMPLATES / "lint.html.j2"))
