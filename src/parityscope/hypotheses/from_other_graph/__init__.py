"""The candidate's own graph against the reference's: an alignment, the differences in words, and which of them matter.

`compare_graphs` gives the differences that make the error of the outputs, proved by putting them into the reference's graph,
and those that are harmless; `transplant_differences` puts differences into a copy of the reference's file, `put_back` puts
them right in a copy of the candidate's.
"""

from parityscope.hypotheses.from_other_graph.comparing import Compared, compare_graphs
from parityscope.hypotheses.from_other_graph.deciding import GraphDecision, SideOutputs, Unit
from parityscope.hypotheses.from_other_graph.transplanting import put_back, transplant_differences

__all__ = ["Compared", "GraphDecision", "SideOutputs", "Unit", "compare_graphs", "put_back", "transplant_differences"]
