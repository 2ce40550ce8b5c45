"""TensorRT, strongly typed: from its published rules, and from engines that TensorRT-RTX built. NO ENGINE WAS RUN.

Source: NVIDIA, "TensorRT Developer Guide" (10.x), section "Types of Fusions" (supported layer fusions, pointwise fusions,
Q/DQ fusions), and the inspector output that the guide prints. What the guide leaves open was read off the engines that
TensorRT-RTX 1.7.1 builds of some models without a GPU; docs/tensorrt.md has how many regions of others are foretold.

* A convolution takes the ReLU, Clip or Sigmoid behind it, with a constant that is added before.
* Of the rest, what computes element by element, reduces, normalizes or moves is grown into generated kernels, as far as no other
  kernel would have to run in between. A reduction over the last axis stays in its row and goes on; any other ends its kernel,
  since all of what is reduced must be there first. One kernel resamples once. What Concat puts together is written in place, so
  kernels end there, and where an output is given back that others read.
* A product (convolution, deconvolution, MatMul, Gemm) takes the generated kernel behind it as a whole or not at all: where that
  is pointwise, keeps the order of elements, has the size of the product and writes one tensor; for a convolution one that a
  kernel reads (an output is converted). A gate (squeeze and excitation), a mean of what others read too, a normalization behind
  a product leave it bare. Of two products before one kernel, the first of the file takes it.
* Attention (product, scale, mask, Softmax, product) is one kernel, the probabilities rounded for its second product.
* MatMuls of one tensor with constants of one shape (query, key, value) are one product.
* Recurrent operators become a loop of layers ("ILoop"): products and the state are tensors between kernels, the gates one kernel.

With quantizers, a product that reads DequantizeLinear runs in eight bits and takes no generated kernel; MatMul and Gemm take the
QuantizeLinear directly behind. DequantizeLinear is computed again in each kernel that reads it. QuantizeLinear to integers behind
a MaxPool is computed before it.

Published layers of engines agree: ResNet-50's in the guide, ResNet-18's in github.com/NVIDIA/TensorRT issue 4020, but for a
MaxPool that is fused too and rounds nothing (tested).

Strong typing keeps the types of the graph at the borders of kernels. Constants beyond the range of the format are saturated
to its largest finite number. Weights are folded in FP32, before they are rounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.fusion import FusedKernel, FusionProfile, GraphFusion
from parityscope.arithmetic.fusion.layers import cut_into_layers
from parityscope.arithmetic.fusion.matching import POINTWISE, PRODUCTS, is_static
from parityscope.arithmetic.fusion.patterns import activation_kinds, fused_by
from parityscope.arithmetic.recurrent import Recurrence
from parityscope.case.graph import bodies_of_node, constant_value
from parityscope.operators import MOVING, of_kind, operators_that_move

if TYPE_CHECKING:
    from collections.abc import Iterable

    import onnx_ir as ir

    from parityscope.arithmetic.fusion.layers import FusedLayers, Layer

_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
_ACTIVATIONS = frozenset({"Clip", "Relu", "Sigmoid"})
_RESAMPLING = of_kind("resampling")
_REDUCTIONS = of_kind("reduction") | {"GlobalAveragePool", "GlobalMaxPool"}
_ROWS = of_kind("softmax", "normalization") - {"BatchNormalization"}
_MOVES = MOVING | {"Concat", "Pad", "Resize", "Trilu", "Upsample"}
_IN_ORDER = operators_that_move("in order") | of_kind("conversion")


class _Clusters:
    """Groups of the layers 0, 1, ... of a graph, each of which reads earlier ones only.

    `reads` gives for each layer those that it reads. Groups are joined as long as no layer outside of the joined group would
    have to run between two of its members.
    """

    def __init__(self, reads: list[tuple[int, ...]]) -> None:
        self._group = list(range(len(reads)))
        self.members = {place: [place] for place in range(len(reads))}
        self._readers: dict[int, set[int]] = {place: set() for place in range(len(reads))}
        for place, each in enumerate(reads):
            for read in each:
                self._readers[read].add(place)

    def of(self, place: int) -> int:
        """The group of a layer, by the number of its first member."""
        return self._group[place]

    def join(self, first: int, second: int) -> bool:
        """Joins the groups of two layers; whether they are one now."""
        one, other = sorted((self.of(first), self.of(second)))
        if one == other:
            return True
        if self._leads_outside(one, other) or self._leads_outside(other, one):
            return False
        for place in self.members[other]:
            self._group[place] = one
        self.members[one] = sorted((*self.members[one], *self.members.pop(other)))
        return True

    def _leads_outside(self, source: int, target: int) -> bool:
        """Whether a path leads from one group to another through a third."""
        last = self.members[target][-1]
        seen = {source, target}
        stack = [group for group in self._groups_behind(source) if group != target]
        while stack:
            group = stack.pop()
            if group == target:
                return True
            if group in seen or self.members[group][0] > last:
                continue
            seen.add(group)
            behind = self._groups_behind(group)
            if target in behind:
                return True
            stack.extend(behind)
        return False

    def _groups_behind(self, group: int) -> set[int]:
        return {self.of(reader) for place in self.members[group] for reader in self._readers[place]} - {group}

    def each(self) -> Iterable[list[int]]:
        """The members of each group, in the order of their first ones."""
        return self.members.values()


def _pointwise_kinds() -> frozenset[str]:
    return POINTWISE | of_kind("comparison", "logic", "choice") | {"BatchNormalization", _QUANTIZE} | activation_kinds()


def _predict_fusion(model: ir.Model, precision: str) -> GraphFusion | None:
    if precision not in {"bf16", "f16"}:
        return None
    layers = cut_into_layers(model, fused_by("tensorrt"))
    _take_biases(layers)
    _merge_equal_products(layers)
    taken = _take_generated_kernels(_GeneratedKernels(layers))
    kernels = []
    for group in taken:
        nodes = dict.fromkeys(node for layer in group for node in (*_dequantizers_read(layer), *layer.nodes))
        values = tuple(str(value.name) for node in nodes for value in node.outputs if value.name)
        kernels.append(FusedKernel(values=values, precision=precision, stored=precision, kind=group[0].kind))
    return GraphFusion(
        kernels=tuple(kernels),
        default=precision,
        stores_constants=False,
        folds=True,
        overflow="saturate",
        recurrence=Recurrence(stored=frozenset({"states", "products"})),
    )


def _take_biases(layers: FusedLayers) -> None:
    """Merges an activation behind a convolution into it, with a constant that is added before."""
    for layer in layers.each():
        if layer.kind not in _CONVOLUTIONS:
            continue
        child = layers.only_child(layer)
        bias = child if child is not None and child.kind == "Add" and len(layers.inputs(child)) == 1 else None
        activation = child if bias is None else layers.only_child(bias)
        if activation is not None and activation.kind in _ACTIVATIONS:
            for each in (activation,) if bias is None else (bias, activation):
                layers.merge(layer, each)


def _merge_equal_products(layers: FusedLayers) -> None:
    """Makes one layer of MatMuls that read one tensor and constants of one shape."""
    alike: dict[tuple[ir.Value, tuple[int, ...]], list[Layer]] = {}
    for layer in layers.each():
        if layer.kind == "MatMul" and len(layer.nodes) == 1:
            read, weight = layer.nodes[0].inputs
            tensor = None if weight is None else constant_value(weight)
            if read is not None and tensor is not None:
                alike.setdefault((read, tensor.numpy().shape), []).append(layer)
    for first, *others in alike.values():
        for other in others:
            first.nodes[:0] = (
                other.nodes
            )  # what reads the first may stand before the others: layers are ordered by their last node
            layers.of.update(dict.fromkeys(other.nodes, first))


def _is_in_eight_bits(product: Layer) -> bool:
    """Whether what a product reads, and not its weight alone, comes from a DequantizeLinear."""
    return any(not is_static(node.outputs[0]) for node in _dequantizers_read(product))


def _dequantizers_read(layer: Layer) -> list[ir.Node]:
    made = [value.producer() for node in layer.nodes for value in node.inputs if value is not None]
    return [node for node in made if node is not None and node.op_type == _DEQUANTIZE]


class _GeneratedKernels:
    """The layers in an order in which each reads earlier ones, and which of them are one generated kernel.

    A DequantizeLinear that others read is none of them: each reader computes it itself.
    """

    def __init__(self, layers: FusedLayers) -> None:
        self._fused = layers
        self.layers = _order_layers(layers)
        self._place = {node: place for place, layer in enumerate(self.layers) for node in layer.nodes}
        self.reads = [self._places_read(layer) for layer in self.layers]
        self.groups = _Clusters(self.reads)
        self.pointwise = _pointwise_kinds()
        generated = self.pointwise | _REDUCTIONS | _ROWS | _MOVES
        for place, layer in enumerate(self.layers):
            if layer.kind not in generated:
                continue
            for read in self.reads[place]:
                if self.layers[read].kind in generated and self._may_go_on(read, place):
                    self.groups.join(read, place)

    def _may_go_on(self, read: int, place: int) -> bool:
        """Whether a layer may be computed in the kernel of one that it reads."""
        before, layer = self.layers[read], self.layers[place]
        if layer.kind == "Concat" or self.gives_back(read):
            return (
                False  # what is put together is written in place by the kernels before; what is given back is written
            )
        resampled = layer.kind in _RESAMPLING and any(
            self.layers[member].kind in _RESAMPLING for member in self.groups.members[self.groups.of(read)]
        )
        ended = any(
            _ends_kernel(self.layers[each]) and self.groups.of(each) == self.groups.of(read)
            for each in self.reads[place]
        )
        return before.nodes[0].graph is layer.nodes[0].graph and not resampled and not ended

    def readers(self, place: int) -> set[int]:
        """The layers that read one."""
        users = [user for node in self.layers[place].nodes for value in node.outputs for user, _ in value.uses()]
        behind = {reader for user in users for reader in self._behind(user)}
        return behind - {place}

    def gives_back(self, place: int) -> bool:
        """Whether a layer computes an output of the graph."""
        return any(value.is_graph_output() for node in self.layers[place].nodes for value in node.outputs)

    def _behind(self, user: ir.Node) -> list[int]:
        if user in self._place:
            return [self._place[user]]
        return [reader for value in user.outputs for further, _ in value.uses() for reader in self._behind(further)]

    def _places_read(self, layer: Layer) -> tuple[int, ...]:
        values = [value for node in layer.nodes for value in _values_read(node)]
        if (pooled := _pooled_before(self._fused, layer)) is not None:
            values = [value for node in pooled.nodes for value in node.inputs if value is not None]
        elif (behind := self._fused.only_child(layer)) is not None and _pooled_before(self._fused, behind) is layer:
            return (self._place[behind.nodes[0]],)
        found = []
        while values:
            node = values.pop().producer()
            if node is None or node in layer.nodes:
                continue
            if node in self._place:
                found.append(self._place[node])
            elif node.op_type == _DEQUANTIZE:
                values.extend(value for value in node.inputs if value is not None)
        return tuple(dict.fromkeys(found))


def _take_generated_kernels(found: _GeneratedKernels) -> list[list[Layer]]:
    """The kernels: each product with the part of a generated kernel that it takes, and what is left of those."""
    pooled = _pooled_layers(found)
    taken: dict[int, int] = {}
    for members in found.groups.each():
        if found.layers[members[0]].kind not in PRODUCTS and _can_be_taken(found, members, pooled):
            taken.update(_takers(found, members))
    for place, layer in enumerate(found.layers):
        # A product in eight bits ends in the quantizer directly behind it, and in nothing else.
        readers = found.readers(place)
        if layer.kind in PRODUCTS - _CONVOLUTIONS and _is_in_eight_bits(layer) and len(readers) == 1:
            reader = readers.pop()
            if found.layers[reader].kind == _QUANTIZE:
                taken[reader] = place
    kernels: dict[int, list[Layer]] = {}
    for place, layer in enumerate(found.layers):
        kernels.setdefault(taken.get(place, -1 - found.groups.of(place)), []).append(layer)
    for place in set(taken.values()):
        kernels[place] = [*kernels.pop(-1 - found.groups.of(place)), *kernels[place]]
    return list(kernels.values())


def _can_be_taken(found: _GeneratedKernels, members: list[int], pooled: set[int]) -> bool:
    """Whether a generated kernel could be the end of a product: pointwise, in order, of one size, with one result."""
    inside = set(members)
    exits = [place for place in members if found.readers(place) - inside]
    for place in members:
        layer = found.layers[place]
        if layer.kind not in found.pointwise | _IN_ORDER or layer.kind == _QUANTIZE:
            return False
        sources = {read in pooled for read in found.reads[place]}
        if len(sources) == 2 or _dequantizers_read(layer) or (found.gives_back(place) and place not in exits):
            return False
    return len(exits) <= 1


def _takers(found: _GeneratedKernels, members: list[int]) -> dict[int, int]:
    """The product that takes each member: of several before it the first of the file, which then runs last."""
    inside = set(members)
    above: dict[int, set[int]] = {}
    for place in members:
        above[place] = set()
        for read in found.reads[place]:
            if read in inside:
                above[place] |= above[read]
            elif _is_bare(found, read, inside):
                above[place].add(read)
    return {place: min(products) for place, products in above.items() if products}


def _is_bare(found: _GeneratedKernels, place: int, inside: set[int]) -> bool:
    """Whether a layer is a product, not in eight bits, of which all readers are `inside`."""
    layer = found.layers[place]
    if layer.kind in _CONVOLUTIONS and any(found.gives_back(member) and not found.readers(member) for member in inside):
        return False
    alone = layer.kind in PRODUCTS and len([node for node in layer.nodes if node.op_type in PRODUCTS]) == 1
    return alone and not _is_in_eight_bits(layer) and not found.gives_back(place) and found.readers(place) <= inside


def _pooled_layers(found: _GeneratedKernels) -> set[int]:
    """Layers that compute with what was reduced to one element of a channel, and with nothing else."""
    pooled: set[int] = set()
    for place, layer in enumerate(found.layers):
        reads = found.reads[place]
        if _ends_kernel(layer) or (reads and pooled.issuperset(reads)):
            pooled.add(place)
    return pooled


def _ends_kernel(layer: Layer) -> bool:
    """Whether a layer reduces over other axes than the last one."""
    if layer.kind not in _REDUCTIONS or len(layer.nodes) != 1:
        return False
    node = layer.nodes[0]
    if node.op_type not in of_kind("reduction"):
        return True
    given = constant_value(node.inputs[1]) if len(node.inputs) > 1 else None
    axes = [] if given is None else [int(axis) for axis in given.numpy().reshape(-1)]
    axes = list(node.attributes["axes"].as_ints()) if "axes" in node.attributes else axes
    shape = None if node.inputs[0] is None else node.inputs[0].shape
    return len(axes) != 1 or (axes[0] != -1 and shape is not None and axes[0] != len(shape) - 1)


def _order_layers(layers: FusedLayers) -> list[Layer]:
    found: list[Layer] = []
    for layer in layers.each():
        if layer.kind == _DEQUANTIZE and any(value.uses() for value in layer.nodes[0].outputs):
            continue
        place = len(found)
        if (pooled := _pooled_before(layers, layer)) is not None:
            place = found.index(pooled)
        found.insert(place, layer)
    return found


def _pooled_before(layers: FusedLayers, layer: Layer) -> Layer | None:
    """The MaxPool that a QuantizeLinear alone reads."""
    value = layer.nodes[0].inputs[0] if layer.kind == _QUANTIZE else None
    pool = None if value is None else layers.of.get(value.producer())  # type: ignore[arg-type]
    zero = constant_value(layer.nodes[0].inputs[2]) if pool is not None and len(layer.nodes[0].inputs) > 2 else None
    if pool is None or pool.kind != "MaxPool" or (zero is not None and zero.dtype.is_floating_point()):
        return None
    return pool if layers.only_child(pool) is layer else None


def _values_read(node: ir.Node) -> list[ir.Value]:
    """What a node reads, what the bodies in it read with it."""
    bodies = [each for body in bodies_of_node(node) for each in body.all_nodes()]
    return [value for each in (node, *bodies) for value in each.inputs if value is not None and not is_static(value)]


PROFILE = FusionProfile(name="tensorrt", title="TensorRT, strongly typed (not run)", predict=_predict_fusion)
