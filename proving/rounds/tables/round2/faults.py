"""What is wrong, model by model, stated before anything was run; and which deployments are right.

A fault: how it is shown, its edits, the tensors at which it is visible first, what is wrong, and another right name for it; then the public
issue it was taken from, if any. The others are edits of graph, weights or code that a person or a tool could make.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from proving.rounds.editing import after, attributes, identity, inputs, operand, operator, swap_blocks, weight
from proving.rounds.inputs import DEVIATION, MEAN, Sample
from proving.rounds.records import Fault

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from proving.rounds.editing import Edit

_BACKBONE = "/pair/backbone"


def _gates(names: tuple[str, ...], blocks: tuple[int, ...]) -> tuple[Edit, ...]:
    """The blocks of 128 rows of a GRU's weights, in another order."""

    def change(value: NDArray[Any]) -> NDArray[Any]:
        order = np.concatenate([np.arange(128) + 128 * block for block in blocks])
        return value[:, np.concatenate([order + 384 * half for half in range(value.shape[1] // 384)])]

    return tuple(weight(name, change) for name in names)


def _corners(samples: list[Sample]) -> list[Sample]:
    """Centre and size become two corners."""
    made = []
    for sample in samples:
        value = sample["output0"].copy()
        centre, half = value[:, :2].copy(), value[:, 2:4] / 2
        value[:, :2], value[:, 2:4] = centre - half, centre + half
        made.append({"output0": value})
    return made


def _flip_bit(value: NDArray[Any]) -> NDArray[Any]:
    """Bit 25 of one element: an exponent bit, a factor of 16."""
    bits = value.view(np.uint32)
    bits[7, 11, 0, 0] ^= np.uint32(1 << 25)
    return value


FAULTS: dict[str, tuple[Fault, ...]] = {
    "khmer": (
    Fault("graph", (weight("model.encoder.layers.0.norm2.weight", lambda _: 1),), ("layer_norm_1",),
          "The gain of LayerNormalization node_layer_norm_1 (layers.0.norm2.weight) is 1 everywhere.", "affine scale of that layer norm missing", "pytorch/pytorch#60582"),
    Fault("graph", (weight("model.pos.pe", lambda v: np.roll(v, -1, 1)),), ("slice_1", "add_7"),
          "The positional table model.pos.pe is shifted by one: position i gets the row of position i+1.", "positions start at 1 rather than 0; the table's rows rolled by one"),
    Fault("graph", (inputs("select_4", {1: "val_29"}), inputs("select_5", {1: "val_4"})), ("select_4", "select_5"),
          "Keys and values of the second layer (index 1) are exchanged: select_4 takes slice 2 and select_5 slice 1 of the packed projection.", "the Gather indices of K and V swapped; in_proj split in another order"),
    Fault("graph", (attributes("val_224", axis=-2),), ("val_224",),
          "Softmax node_Softmax_220 normalizes over axis -2 (queries) in place of -1 (keys).", "attention weights transposed in their normalization; wrong softmax axis"),
    Fault("graph", (operand("val_328", 1, lambda v: v * 0 + 1),), ("val_328", "val_331"),
          "Mul node_Mul_320 multiplies the queries of the last layer by 1 in place of 32^-0.25 = 0.4204.", "attention scale of layer 2 applied to the keys only; scores too large by 2.378"),
    Fault("outputs", (weight("val_347", lambda v: np.clip(v, -0.05, 0.05)),), ("val_348",),
          "The weights of the last feed-forward layer (val_347, linear2 of layer 2) are clipped to 0.05.", "saturated weights in node_MatMul_338; too small a range of quantization"),
    Fault("outputs", (weight("model.emb.weight", lambda v: np.where(np.arange(len(v))[:, None] < 40, v, v[1])),), ("embedding",),
          "Embedding rows from 40 on hold the row of <unk> (row 1): the vocabulary was cut at 40.", "wrong or truncated embedding table model.emb.weight; rare letters mapped to <unk>"),
    Fault("outputs", (inputs("add_290", {0: "add_177"}),), ("add_290",),
          "The residual of the attention of layer 1 is taken before the layer norm (add_177) rather than behind it (layer_norm_1).", "Add node_add_290 reads add_177; pre-norm residual in a post-norm layer; layer_norm_1 skipped in the residual"),
    Fault("around", (), ("x",),
          "Every id larger than 1 is one too small: the deployment's tokenizer has no <unk>.", "ids shifted by one; embedding rows read one too early", prepare=lambda s: {**s, "x": np.where(s["x"] > 1, s["x"] - 1, s["x"])}),
    Fault("two", (weight("model.encoder.layers.0.self_attn.out_proj.bias", lambda v: v + 0.5 * (np.arange(192) < 64)), operator("relu_2", "LeakyRelu", alpha=0.1)), ("linear_1", "relu_2"),
          "The first 64 elements of the out_proj bias of layer 0 are larger by 0.5 (linear_1), and the Relu of layer 2 (relu_2) is LeakyRelu with slope 0.1.", "an offset in a third of the channels of linear_1; negative values pass in relu_2"),
    ),
    "f0": (
    Fault("graph", (weight("v41", np.mean),), ("v42",),
          "The window of the 1024-sample spectrum (v41) is rectangular (its mean everywhere) in place of Hann.", "no window before the first transform; constant window"),
    Fault("graph", (operand("v130", 1, lambda _: 0.05),), ("v130",),
          "The floor added before the first logarithm (Add v130) is 0.05 in place of 1e-8.", "log offset too large in the branch of 1024 samples; quiet bands are lifted"),
    Fault("graph", (attributes("v368", dilations=[1, 1], pads=[3, 0, 3, 0]),), ("v368",),
          "The Conv that writes v368 has dilation 1 (pads 3) in place of 17 (pads 51).", "dilation ignored in the first dilated convolution"),
    Fault("graph", (weight("v455", lambda v: v + 0.5 * (v[1] - v[0])),), ("v456",),
          "The table of log frequencies v455 is half a bin too high (+0.0202): bin centres confused with bin edges.", "pitch too high by 2.04 percent; exp of an offset"),
    Fault("graph", (operand("v449", 1, lambda _: 0),), ("v449", "v450"),
          "The index into the padded scores lacks its +1 (Add v449 adds 0): every window of three is read one bin too low.", "off by one in GatherElements after Pad"),
    Fault("outputs", (weight("v435", lambda _: 0),), ("v436",),
          "The last Conv of the confidence head (v436) runs without its bias 0.4249 (v435).", "confidence's logit too low by 0.4249"),
    Fault("outputs", (weight("v402", lambda v: v[:, :, ::-1, ::-1]),), ("v404",),
          "The kernel v402 of the Conv that writes v404 is turned by 180 degrees: convolution in place of correlation.", "weights flipped along both kernel axes"),
    Fault("outputs", (identity("v391", 1),), ("v391",),
          "The skip connection of the block with dilation 40 is missing: v391 is v390 alone rather than v383 + v390.", "residual Add dropped"),
    Fault("around", (), ("audio",),
          "The deployment applies pre-emphasis x[n] - 0.97 x[n-1] to the audio, which the network was not trained with.", "input high-pass filtered; wrong preprocessing of the audio",
          prepare=lambda s: {**s, "audio": (s["audio"] - 0.97 * np.pad(s["audio"], ((0, 0), (1, 0)))[:, :-1]).astype(np.float32)}),
    Fault("two", (identity("v383"), weight("v431", lambda v: -v)), ("v383", "v432"),
          "The Relu that writes v383 is missing, and the bias v431 of the confidence head's first Conv (v432) has the opposite sign.", "activation dropped in the block with dilation 27; bias subtracted in v432", recorded=True),
    ),
    "orient": (
    Fault("graph", (attributes("/body/body.0/Conv_output_0", pads=[0, 0, 2, 2]),), ("/body/body.0/Conv_output_0",),
          "The first Conv (stride 2) pads 0 before and 2 behind in place of 1 and 1.", "asymmetric padding; image shifted by one pixel"),
    Fault("graph", (operator("/body/body.20/MaxPool_output_0", "AveragePool", kernel_shape=[2, 2], strides=[2, 2]),), ("/body/body.20/MaxPool_output_0",),
          "The third pooling (body.20) is AveragePool in place of MaxPool.", "mean of each 2x2 rather than its maximum"),
    Fault("graph", (weight("onnx::Conv_105", lambda v: np.clip(np.round(v / np.abs(v).max() * 508), -127, 127) * np.abs(v).max() / 508),), ("/body/body.21/Conv_output_0",),
          "The weights of body.21 are quantized to INT8 per tensor with a range that is a quarter of their largest magnitude: the larger ones are clipped.", "saturated weights onnx::Conv_105; too small calibration range"),
    Fault("graph", (operator("/head/head.0/GlobalAveragePool_output_0", "GlobalMaxPool"),), ("/head/head.0/GlobalAveragePool_output_0",),
          "GlobalAveragePool of the head is GlobalMaxPool.", "maximum rather than mean over positions"),
    Fault("graph", (operator("/body/body.9/Relu_output_0", "LeakyRelu", alpha=0.1),), ("/body/body.9/Relu_output_0",),
          "The Relu behind body.7 (body.9) is LeakyRelu with slope 0.1.", "negative values pass with a tenth"),
    Fault("outputs", (weight("onnx::Conv_96", lambda v: swap_blocks(v, 1, 8)),), ("/body/body.10/Conv_output_0",),
          "The weights of body.10 have neighbouring blocks of 8 input channels exchanged (a wrong NCHW8c packing).", "channels of body.9 permuted in blocks of 8 before body.10"),
    Fault("outputs", (weight("head.4.weight", lambda v: v[[0, 3, 2, 1]]),), ("logits",),
          "Rows 1 and 3 of head.4.weight are exchanged, the bias is not: 90 and 270 degrees are confused.", "classes 1 and 3 swapped up to the bias; wrong order of classes in the last Gemm"),
    Fault("outputs", (weight("onnx::Conv_109", lambda _: 0),), ("/body/body.24/Conv_output_0",),
          "The last Conv (body.24) runs without its bias.", "bias onnx::Conv_109 zero"),
    Fault("around", (), ("x",),
          "The image is not normalized: (x - mean) / deviation is left out, values lie in 0..1.", "mean and standard deviation missing; input scaled and shifted by channel", prepare=lambda s: {"x": s["x"] * DEVIATION + MEAN}),
    Fault("two", (weight("onnx::Conv_90", lambda v: np.concatenate([v[:8, :, ::-1, ::-1], v[8:]])), identity("/head/head.3/Relu_output_0")), ("/body/body.3/Conv_output_0", "/head/head.3/Relu_output_0"),
          "Kernels of output channels 0 to 7 of body.3 are turned by 180 degrees, and the Relu of the head (head.3) is missing.", "flipped kernels in body.3; no activation between the two Gemms"),
    ),
    "signal": (
    Fault("graph", (operand(f"{_BACKBONE}/blocks/blocks.3/Div_output_0", 1, lambda _: 1),), (f"{_BACKBONE}/blocks/blocks.3/Div_output_0",),
          "The first GELU of block 3 divides by 1 in place of sqrt(2) before Erf.", "erf(x) rather than erf(x/sqrt 2); a GELU that is too steep"),
    Fault("graph", (after(f"{_BACKBONE}/pool/ReduceMean_output_0", "Mul", np.float32(0.5)),), (f"{_BACKBONE}/pool/ReduceMean_output_0",),
          "The mean over time of the pooling is half of what it should be: divided by twice the number of frames.", "padded frames counted in the mean; factor 0.5 behind ReduceMean"),
    Fault("graph", (attributes(f"{_BACKBONE}/blocks/blocks.4/c1/Conv_output_0", dilations=[8], pads=[16, 16]),), (f"{_BACKBONE}/blocks/blocks.4/c1/Conv_output_0",),
          "The first Conv of block 4 has dilation 8 (pads 16) in place of 16 (pads 32).", "dilation of the block before"),
    Fault("graph", (inputs(f"{_BACKBONE}/pool/Concat_output_0", {0: f"{_BACKBONE}/pool/ReduceMean_output_0", 1: f"{_BACKBONE}/pool/ReduceSum_output_0"}),), (f"{_BACKBONE}/pool/Concat_output_0",),
          "The pooled vectors are concatenated as mean, weighted sum, maximum in place of weighted sum, mean, maximum.", "first two inputs of the Concat exchanged"),
    Fault("graph", (attributes(f"{_BACKBONE}/stem/stem.0/Conv_output_0", pads=[0, 6]),), (f"{_BACKBONE}/stem/stem.0/Conv_output_0",),
          "The first Conv pads 0 before and 6 behind in place of 3 and 3.", "input shifted by three seconds; asymmetric padding"),
    Fault("outputs", (attributes(f"{_BACKBONE}/pool/Softmax_output_0", axis=2),), (f"{_BACKBONE}/pool/Softmax_output_0",),
          "The Softmax of the attention pooling runs over axis 2 (size 1) in place of 1 (time): every weight is 1.", "attention weights not normalized over time; a plain sum over time"),
    Fault("outputs", (weight("onnx::Conv_345", lambda v: swap_blocks(v, 0, 1)),), (f"{_BACKBONE}/blocks/blocks.5/c2/Conv_output_0",),
          "Output channels of the second Conv of block 5 are exchanged in pairs (0 with 1, 2 with 3), its bias is not.", "even and odd rows of onnx::Conv_345 swapped"),
    Fault("outputs", (inputs(f"{_BACKBONE}/blocks/blocks.1/Add_1_output_0", {0: f"{_BACKBONE}/blocks/blocks.1/Mul_1_output_0"}),), (f"{_BACKBONE}/blocks/blocks.1/Add_1_output_0",),
          "The residual of block 1 adds its own inner activation (Mul_1) in place of the block's input.", "skip connection from the wrong tensor"),
    Fault("around", (), ("s", "z"),
          "The server returns the outputs of the request before (a buffer read too early); the first request gets those of the last.", "samples shifted by one; stale outputs", "NVIDIA/TensorRT#842", finish=lambda rows: [rows[-1], *rows[:-1]]),
    Fault("two", (weight("onnx::Conv_309", lambda v: np.where(np.arange(15)[None, :, None] == 2, 0, v)), operator("/pair/proj/proj.1/Erf_output_0", "Tanh")), (f"{_BACKBONE}/stem/stem.0/Conv_output_0", "/pair/proj/proj.1/Erf_output_0"),
          "The first Conv does not see channel 2 (green; its weights are zero), and the last GELU uses tanh(x/sqrt 2) in place of erf(x/sqrt 2).", "input channel 2 lost; an activation that is too flat in proj.1", recorded=True),
    ),
    "jarvis": (
    Fault("graph", (weight("onnx::GreaterOrEqual_50", lambda _: 0),), ("onnx::Cast_51",),
          "The threshold of the If is 0 in place of 0.5: the second network always answers.", "condition always true; constant onnx::GreaterOrEqual_50"),
    Fault("graph", (after("onnx::If_52", "Not"),), ("onnx::If_52", "53"),
          "The condition of the If is inverted: its branches are exchanged.", "then and else swapped"),
    Fault("graph", (identity("onnx::Pow_24"),), ("onnx::Pow_24",),
          "The first layer norm does not subtract the mean (Sub_3): it divides by the root of the mean square.", "RMS norm in place of layer norm"),
    Fault("graph", (after("x.1", "Transpose", reader="input", perm=[0, 2, 1]),), ("input",),
          "The features are flattened with the bands first: (96, 16) in place of (16, 96).", "a Transpose before Flatten_0; wrong layout"),
    Fault("graph", (weight("verifier_model.4.weight", lambda v: v.T),), ("input.35",),
          "Gemm_47 inside the If multiplies by the transposed weight: transB is lost for a square matrix.", "verifier_model.4.weight transposed"),
    Fault("outputs", (weight("model.1.weight", lambda v: np.where(np.arange(len(v))[:, None] < 96, v, 0)),), ("input.3",),
          "Rows 96 to 127 of model.1.weight are zero: the weights' file was cut off.", "last quarter of the first Gemm's features carry the bias alone"),
    Fault("outputs", (identity("result"),), ("result",),
          "The first Relu (Relu_13) is missing.", "negative values pass behind the first layer norm"),
    Fault("outputs", (weight("model.4.bias", lambda v: 3 * v),), ("input.11",),
          "The bias of the second Gemm (model.4.bias) is added three times.", "bias times 3; beta 3"),
    Fault("around", (), ("x.1",),
          "The ring buffer of 16 feature frames is handed over unrolled: its 5 oldest frames come last.", "frames rolled by 5 along axis 1", prepare=lambda s: {"x.1": np.roll(s["x.1"], -5, 1)}),
    Fault("two", (weight("model.2.weight", lambda _: 1), operator("p2", "HardSigmoid", alpha=0.2, beta=0.5)), ("onnx::Add_32", "p2"),
          "The gain of the first layer norm (model.2.weight) is 1 everywhere, and the Sigmoid inside the If (p2) is HardSigmoid 0.2x+0.5.", "missing affine scale; piecewise linear sigmoid"),
    ),
    "translit": (
    Fault("graph", (attributes("/encoder/GRU_1_output_0", linear_before_reset=0),), ("/encoder/GRU_1_output_0",),
          "The second GRU has linear_before_reset 0 in place of 1.", "reset gate applied before the recurrent product", "microsoft/onnxscript#2852"),
    Fault("graph", _gates(("onnx::GRU_383", "onnx::GRU_384", "onnx::GRU_382"), (1, 0, 2)), ("/encoder/GRU_output_0",),
          "Update and reset gate of the first GRU are exchanged (PyTorch's order r, z, n not put into z, r, h).", "gate blocks of onnx::GRU_382, 383 and 384 in the wrong order", "NVIDIA/TensorRT#1443"),
    Fault("graph", (identity("/Mul_output_0"),), ("/Mul_output_0",),
          "The mean for the bridge sums padded positions too: the mask is not multiplied (Mul).", "padding not masked in ReduceSum"),
    Fault("graph", (weight("onnx::GRU_426", lambda v: v[::-1]), weight("onnx::GRU_427", lambda v: v[::-1])), ("/encoder/GRU_1_output_0",),
          "The weights of the forward and the backward direction of the second GRU are exchanged, its biases are not.", "directions swapped in onnx::GRU_426 and 427", "microsoft/onnxruntime#1607"),
    Fault("graph", (operator("/Tanh_output_0", "Softsign"),), ("/Tanh_output_0",),
          "The bridge's Tanh is Softsign x/(1+|x|).", "another, flatter squashing function"),
    Fault("outputs", (weight("onnx::GRU_425", lambda v: np.where(np.arange(768) >= 640, 0, v)),), ("/encoder/GRU_1_output_0",),
          "The recurrent bias of the candidate gate of the second GRU is missing (onnx::GRU_425, columns 640 to 767).", "Rb of the hidden gate zero"),
    Fault("outputs", (weight("m.emb.weight", lambda v: 16 * v),), ("/emb/Gather_output_0",),
          "The embeddings are multiplied by 16 = sqrt(256).", "embedding scale of a transformer applied by mistake"),
    Fault("outputs", (weight("m.bridge.weight", lambda v: v.T),), ("/bridge/Gemm_output_0",),
          "The bridge multiplies by its transposed weight: transB is lost for a square matrix.", "m.bridge.weight transposed"),
    Fault("around", (), ("src_mask",),
          "The mask is handed over inverted: True for letters in place of True for padding.", "src_mask negated; mean over the padding", prepare=lambda s: {**s, "src_mask": ~s["src_mask"]}),
    Fault("two", (weight("onnx::GRU_382", lambda v: np.where(np.arange(768) < 128, -v, v)), weight("m.bridge.bias", lambda v: v + 0.3)), ("/encoder/GRU_output_0", "/bridge/Gemm_output_0"),
          "The update gate's input bias of the first GRU has the opposite sign, and the bridge's bias is larger by 0.3.", "wrong sign in columns 0 to 127 of onnx::GRU_382; offset of 0.3 in the bridge", recorded=True),
    ),
    "nude": (
    Fault("graph", (attributes("/model.13/Resize_output_0", nearest_mode="ceil"),), ("/model.13/Resize_output_0",),
          "The second upsampling (model.13, nearest) rounds up in place of down.", "Resize takes the next pixel for odd positions; nearest_mode ceil rather than floor"),
    Fault("graph", (attributes("/model.9/m/MaxPool_output_0", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),), ("/model.9/m/MaxPool_output_0",),
          "The first pooling of model.9 has a kernel of 3x3 in place of 5x5.", "smaller window in SPPF"),
    Fault("graph", (weight("model.22.dfl.conv.weight", lambda v: v + 1),), ("/model.22/dfl/conv/Conv_output_0",),
          "The bins of the distance decoding count from 1 to 16 in place of 0 to 15.", "every distance too large by 1; model.22.dfl.conv.weight + 1"),
    Fault("graph", (operand("/model.22/Add_5_output_0", 1, lambda _: 14),), ("/model.22/Add_5_output_0",),
          "The stride of the middle level is 14 in place of 16.", "boxes of 400 anchors scaled by 0.875; Squeeze_1 constant wrong"),
    Fault("graph", (inputs("/model.17/Concat_output_0", {0: "/model.12/cv2/act/Mul_output_0", 1: "/model.16/act/Mul_output_0"}),), ("/model.17/Concat_output_0",),
          "The two inputs of the Concat model.17 are exchanged.", "channels of model.16 and model.12 in the wrong order"),
    Fault("outputs", (operator("/model.21/cv1/act/Sigmoid_output_0", "HardSigmoid", alpha=1 / 6, beta=0.5),), ("/model.21/cv1/act/Sigmoid_output_0",),
          "The SiLU of model.21.cv1 is computed as hard swish: HardSigmoid x/6+0.5 in place of Sigmoid.", "piecewise linear sigmoid in one activation"),
    Fault("outputs", (inputs("/model.2/Concat_output_0", {0: "/model.2/Split_output_1"}),), ("/model.2/Concat_output_0",),
          "The Concat of model.2 reads the second half of its Split twice, the first half never.", "Split_output_0 replaced by Split_output_1"),
    Fault("outputs", (weight("model.2.cv1.conv.weight", _flip_bit),), ("/model.2/cv1/conv/Conv_output_0",),
          "One bit of one weight is flipped: model.2.cv1.conv.weight[7, 11, 0, 0], bit 25: 0.9214 in place of 0.0576.", "output channel 7 of model.2.cv1 wrong; a corrupt weight, 16 times too large"),
    Fault("around", (), ("output0",),
          "Boxes come back as two corners (x1, y1, x2, y2) in place of centre and size.", "xyxy rather than xywh in rows 0 to 3", finish=_corners),
    Fault("two", (operand("/model.22/Add_8_output_0", 1, lambda _: 16), identity("/model.6/m.0/Add_output_0", 1)), ("/model.22/Add_8_output_0", "/model.6/m.0/Add_output_0"),
          "The stride of the coarsest level is 16 in place of 32, and the skip connection of model.6.m.0 is missing.", "boxes of the last 100 anchors half as large; residual Add dropped"),
    ),
    "turn": (
    Fault("graph", (inputs("conv1d_1_DequantizeLinear_Output", {1: "gelu_scale"}),), ("conv1d_1_DequantizeLinear_Output",),
          "The second Conv's output is dequantized with the scale of its input gelu (0.0441 in place of 0.0840).", "conv1d_1 too small by 0.525; a pair of Q and DQ with two scales"),
    Fault("graph", (operand("gelu_DequantizeLinear_Output", 2, lambda _: 0),), ("gelu_DequantizeLinear_Output",),
          "The first GELU is dequantized with zero point 0 in place of 4.", "an offset of 4 steps (0.176) behind gelu"),
    Fault("graph", (operand("val_64", 1, lambda v: v * v),), ("val_64",),
          "Queries of layer 0 are multiplied by 0.125 in place of 0.3536: the whole scale, while the keys get their half too.", "attention scale applied one and a half times; scores too small by 2.83"),
    Fault("graph", (weight("inner.encoder.embed_positions.weight", lambda v: np.concatenate([v[:, 192:], v[:, :192]], 1)),), ("add_20",),
          "The positional table has its halves exchanged: cosines before sines.", "embed_positions wrong; columns 0 to 191 and 192 to 383 swapped"),
    Fault("graph", (attributes("softmax", axis=2),), ("softmax",),
          "The Softmax of the pooling runs over axis 2 (size 1) in place of 1 (time): every weight is 1.", "pooling is a plain sum over time"),
    Fault("outputs", (weight("val_79_scale", lambda v: v.max()),), ("val_80",),
          "The weights of the first feed-forward layer (val_79) are dequantized with one scale, the largest, in place of one a channel.", "per-tensor in place of per-channel scales in val_79_scale"),
    Fault("outputs", (weight("inner.encoder.layer_norm.bias", lambda _: 0),), ("layer_norm_8",),
          "The last LayerNormalization (layer_norm_8) runs without its bias.", "bias of the encoder's final layer norm zero"),
    Fault("outputs", (after("add_146", "Clip", np.float32(-1), np.float32(1)),), ("add_146",),
          "The residual stream behind layer 0 (add_146) saturates at 1.0.", "clipped by a too small INT8 range"),
    Fault("around", (), ("input_features",),
          "The features' last step (x + 4) / 4 is left out.", "input_features scaled by 4 and shifted by -4; wrong preprocessing", prepare=lambda s: {"input_features": 4 * s["input_features"] - 4}),
    Fault("two", (operator("val_10", "Tanh"), weight("inner.classifier.6.weight_scale", lambda v: v / 2)), ("val_10", "linear_28"),
          "The second GELU uses tanh(x/sqrt 2) in place of erf(x/sqrt 2), and the weights of classifier.6 are dequantized with half their scale.", "another activation behind conv1d_1; the last Gemm's products half as large (linear_28)", recorded=True),
    ),
}
RIGHTS: dict[str, tuple[str, str, str, str]] = {
    "khmer": ("disabled", "half", "int8", "bfloat16"),
    "f0": ("disabled", "optimized", "renamed", "basic"),
    "orient": ("basic", "half", "renamed", "opset"),
    "signal": ("disabled", "half", "optimized", "float16"),
    "jarvis": ("disabled", "half", "opset", "renamed"),
    "translit": ("basic", "opset", "renamed", "bfloat16"),
    "nude": ("disabled", "float16", "renamed", "optimized"),
    "turn": ("threads", "basic", "renamed", "folded"),
}
