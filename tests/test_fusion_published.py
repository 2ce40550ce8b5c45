"""The TensorRT profile against layers that engines were published with. NOT RUN here: no TensorRT built these.

* NVIDIA TensorRT Developer Guide, "Engine Inspector": ResNet-50 (Caffe2's names), one layer in full.
* github.com/NVIDIA/TensorRT issue 4020: `trtexec --exportLayerInfo` of resnet18-v1-7.onnx, TensorRT 10.1, FP16 and INT8.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from parityscope.arithmetic.fusion import profile_named

# The nodes of the two published networks, by the names of the nodes; "+" joins what the engine put into one layer.
GUIDE = ("res4_0_branch2a_1 + res4_0_branch2a_bn_1 + res4_0_branch2a_bn_2",)
RESNET18 = (
    "conv0 + batchnorm0 + relu0 + pool0",
    "stage1_conv0 + stage1_batchnorm0 + stage1_relu0",
    "stage1_conv1 + stage1_batchnorm1 + plus0 + activation0",
    "stage1_conv2 + stage1_batchnorm2 + stage1_relu1",
    "stage1_conv3 + stage1_batchnorm3 + plus1 + activation1",
)
# What TensorRT puts together and the profile does not: a maximum rounds nothing, so that it makes no difference.
# The networks go on where these layers end: what stands behind a convolution at an output of the graph is no part of it.
MOVES = frozenset({"pool0", "next"})

TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,4,16,16] x) => (float[1,4,8,8] y) {
  [conv0] a = Conv<kernel_shape = [3,3], pads = [1,1,1,1]>(x, w)
  [batchnorm0] b = BatchNormalization(a, s, s, s, s)
  [relu0] c = Relu(b)
  [pool0] d = MaxPool<kernel_shape = [2,2], strides = [2,2]>(c)
  [stage1_conv0] e = Conv<kernel_shape = [3,3], pads = [1,1,1,1]>(d, w)
  [stage1_batchnorm0] f = BatchNormalization(e, s, s, s, s)
  [stage1_relu0] h = Relu(f)
  [stage1_conv1] i = Conv<kernel_shape = [3,3], pads = [1,1,1,1]>(h, w)
  [stage1_batchnorm1] j = BatchNormalization(i, s, s, s, s)
  [plus0] k = Add(j, d)
  [activation0] l = Relu(k)
  [stage1_conv2] m = Conv<kernel_shape = [3,3], pads = [1,1,1,1]>(l, w)
  [stage1_batchnorm2] n = BatchNormalization(m, s, s, s, s)
  [stage1_relu1] o = Relu(n)
  [stage1_conv3] p = Conv<kernel_shape = [3,3], pads = [1,1,1,1]>(o, w)
  [stage1_batchnorm3] q = BatchNormalization(p, s, s, s, s)
  [plus1] r = Add(q, l)
  [activation1] out = Relu(r)
  [next] y = Conv<kernel_shape = [3,3], pads = [1,1,1,1]>(out, w)
}"""
BRANCH = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,4,16,16] x) => (float[1,4,16,16] y) {
  [res4_0_branch2a_1] a = Conv<kernel_shape = [3,3], pads = [1,1,1,1]>(x, w)
  [res4_0_branch2a_bn_1] b = BatchNormalization(a, s, s, s, s)
  [res4_0_branch2a_bn_2] c = Relu(b)
  [next] y = Conv<kernel_shape = [3,3], pads = [1,1,1,1]>(c, w)
}"""


def layers(text: str) -> set[frozenset[str]]:
    """The kernels of the profile, as sets of names of nodes."""
    proto = onnx.parser.parse_model(text)
    for name, shape in (("w", (4, 4, 3, 3)), ("s", (4,))):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(shape, np.float32), name))
    model = ir.from_proto(proto)
    names = {str(value.name): str(node.name) for node in model.graph for value in node.outputs}
    fusion = profile_named("tensorrt").predict(model, "f16")
    assert fusion is not None
    return {frozenset(names[value] for value in kernel.values) for kernel in fusion.kernels}


@pytest.mark.parametrize(("text", "published"), [(BRANCH, GUIDE), (TEXT, RESNET18)])
def test_the_profile_puts_together_what_published_engines_did(text: str, published: tuple[str, ...]) -> None:
    wanted = {frozenset(layer.split(" + ")) for layer in published}
    assert {layer - MOVES for layer in layers(text)} - {frozenset()} == {layer - MOVES for layer in wanted}
