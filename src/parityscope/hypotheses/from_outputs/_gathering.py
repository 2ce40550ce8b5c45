"""The compiled loop of `slopes`: adjoints gathered by the value that they stand at."""

from __future__ import annotations

import numpy as np

from parityscope.compiling import compile_loop


@compile_loop(kept=True)
def share_between_nodes(
    array: np.ndarray, adjoint: np.ndarray, nodes: np.ndarray, first: np.ndarray, weights: np.ndarray
) -> None:
    """Adds each element's adjoints to the two nodes around it, by how near it is.

    `array` is float32 (n,), finite and within the nodes, float64 (k,), which rise; `adjoint` float32 (n, d). `first` int64 (b,)
    says for b points at equal distances, from the first node to the last, which node lies at or before them. `weights`, float64
    (k, d), is written.
    """
    low, count = nodes[0], first.shape[0]
    per_unit = (count - 1) / (nodes[-1] - low)
    last = nodes.shape[0] - 2
    for i in range(array.shape[0]):
        value = np.float64(array[i])
        part = min(count - 2, max(0, int((value - low) * per_unit)))
        at, behind = first[part], min(last, first[part + 1] + 1)
        while at < behind:
            middle = (at + behind + 1) // 2
            if nodes[middle] <= value:
                at = middle
            else:
                behind = middle - 1
        share = (value - nodes[at]) / (nodes[at + 1] - nodes[at])
        for d in range(adjoint.shape[1]):
            weight = np.float64(adjoint[i, d])
            weights[at, d] += weight * (1 - share)
            weights[at + 1, d] += weight * share
