"""The study as SARIF 2.1.0: a result a finding, for code scanning and for editors.

A cause is an error, what contributes a warning, information a note; where nothing is named and the outputs are beyond all the
same, that is a result too. The place is the model's file and, as a logical location, the node or tensor.
"""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from parityscope.report import Renderer
from parityscope.report.as_text import plain_first_screen
from parityscope.report.words import as_number, clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {"cause": "error", "contributing": "warning"}
_UNNAMED = "PARITY"  # the rule of outputs that are beyond without a named cause


def render_sarif(document: Mapping[str, Any]) -> str:
    """The report as JSON text."""
    tool = document.get("tool") or {}
    return sarif_log(results_of_study(document), titles_of_rules(document), str(tool.get("version") or ""))


def results_of_study(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A result a finding, and one for outputs that are beyond without a cause."""
    results = [_result_of_finding(one, document) for one in document.get("findings", ())]
    if document.get("verdict") == "beyond" and not any(one["level"] == "error" for one in results):
        results.append(_result_without_cause(document))
    return results


def titles_of_rules(document: Mapping[str, Any]) -> dict[str, str]:
    """What each code of a study's findings is about."""
    return {clean(one.get("code", "")): clean(one.get("title", "")) for one in document.get("findings", ())}


def sarif_log(results: Sequence[Mapping[str, Any]], titles: Mapping[str, str], version: str) -> str:
    """Results of one run as JSON text; `titles` are those of their rules, by code."""
    driver = {
        "name": "Parityscope",
        "version": version,
        "rules": [
            {"id": code, "shortDescription": {"text": titles.get(code) or "Outputs differ by more than they may"}}
            for code in sorted({str(one["ruleId"]) for one in results})
        ],
    }
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": list(results)}
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def make_result(code: str, text: str, path: str) -> dict[str, Any]:
    """An error about the file of a model as a whole."""
    return {
        "ruleId": code,
        "level": "error",
        "message": {"text": text},
        "locations": [_location_of_site({}, {"model": {"path": path}})],
    }


def _result_of_finding(finding: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    text = clean(finding.get("claim") or finding.get("title") or "")
    found: dict[str, Any] = {
        "ruleId": clean(finding.get("code", "")),
        "level": _LEVELS.get(str(finding.get("role")), "note"),
        "message": {"text": text},
        "locations": [_location_of_site(finding.get("site") or {}, document)],
    }
    held = {key: as_number(finding.get(key)) for key in ("confidence", "share")}
    if any(value is not None for value in held.values()):
        found["properties"] = {key: value for key, value in held.items() if value is not None}
    return found


def _result_without_cause(document: Mapping[str, Any]) -> dict[str, Any]:
    ranked = document.get("suspects", ())
    site = (ranked[0].get("site") if ranked else None) or {}
    found = make_result(_UNNAMED, plain_first_screen(document), "")
    return {**found, "locations": [_location_of_site(site, document)]}


def _location_of_site(site: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    path = clean((document.get("model") or {}).get("path") or "") or "model.onnx"
    where: dict[str, Any] = {"physicalLocation": {"artifactLocation": {"uri": quote(PurePath(path).as_posix())}}}
    if logical := list(_logical_locations(site)):
        where["logicalLocations"] = logical
    return where


def _logical_locations(site: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    for key in ("node", "tensor"):
        if name := clean(site.get(key) or ""):
            yield {"name": name, "kind": "object" if key == "node" else "variable"}


RENDERER = Renderer(name="sarif", suffix=".sarif", render=render_sarif)
