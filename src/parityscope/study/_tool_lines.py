"""What keeps a node in FP32, said to other tools: the settings of each exporter, for every cause that offers it.

The nodes are those of the file that is deployed: the candidate's own where it has one, else the reference's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.backends.opening import model_of
from parityscope.errors import ParityError
from parityscope.records import ToolLines
from parityscope.repairs.settings import known_exporters

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.examination import Examination
    from parityscope.records import Diagnosis, Finding, OfferedRepair

__all__ = ["tell_tools"]

_KEPT = "keep_in_fp32"
_LOW = frozenset({"f16", "bf16", "int8"})


def tell_tools(examination: Examination, diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis whose offers to keep a node in FP32 say how, in the tools that take settings by the names of nodes."""
    low = examination.case.policy.declared
    wanted = [one for one in diagnosis.findings if _node_kept(one)]
    if not wanted or low not in _LOW:
        return diagnosis
    graph = model_of(examination.case.model, examination.candidate).graph()
    findings = (_told_finding(one, graph, low) if one in wanted else one for one in diagnosis.findings)
    return replace(diagnosis, findings=tuple(findings))


def _node_kept(finding: Finding) -> str:
    offers = any(one.repair == _KEPT for one in finding.repairs)
    return finding.site.node if offers and finding.role == "cause" and finding.site is not None else ""


def _told_finding(finding: Finding, graph: ir.Model, low: str) -> Finding:
    lines = tuple(_lines_of(_node_kept(finding), graph, low))
    offers: list[OfferedRepair] = [replace(one, tools=lines) if one.repair == _KEPT else one for one in finding.repairs]
    return replace(finding, repairs=tuple(offers))


def _lines_of(node: str, graph: ir.Model, low: str) -> list[ToolLines]:
    """One entry a tool that has this low format and takes this node; a tool that cannot is left out."""
    found = []
    for name, exporter in sorted(known_exporters().items()):
        if low not in exporter.formats:
            continue
        try:
            written = exporter.write({node: "f32"}, graph, low)
        except ParityError:
            continue
        if written.brief and not written.notes:
            found.append(ToolLines(tool=name, title=exporter.title, lines=written.brief))
    return found
