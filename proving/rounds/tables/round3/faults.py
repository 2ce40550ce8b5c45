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

_MORPH = "StatefulPartitionedCall/functional_1"


def _blocks(value: NDArray[Any], axis: int, order: tuple[int, ...]) -> NDArray[Any]:
    """The equal blocks along `axis`, as many as `order` names, in that order."""
    parts = np.split(value, len(order), axis)
    return np.concatenate([parts[one] for one in order], axis)


def _gates(names: tuple[str, ...], order: tuple[int, ...]) -> tuple[Edit, ...]:
    """The gates of an LSTM's two weights, and of both halves of its bias, in another order."""
    both = (*order, *(one + 4 for one in order))
    return (
        *(weight(name, lambda v: _blocks(v, 1, order)) for name in names[:2]),
        weight(names[2], lambda v: _blocks(v, 1, both)),
    )


def _quantized(value: NDArray[Any], steps: int) -> NDArray[Any]:
    """Rounded to `steps` levels on each side of zero, one scale for all."""
    scale = np.abs(value).max() / steps
    return np.asarray(np.round(value / scale) * scale)


def _log(samples: list[Sample]) -> list[Sample]:
    """Logarithms, none below that of 1e-4."""
    return [{name: np.log(np.maximum(value, 1e-4)).astype(value.dtype) for name, value in one.items()} for one in samples]


def _per_frame(sample: Sample) -> Sample:
    """Each frame of a spectrogram has mean 0 and deviation 1."""
    x = sample["x"]
    return {"x": ((x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)).astype(np.float32)}


FAULTS: dict[str, tuple[Fault, ...]] = {
    "captcha": (
    Fault("graph", (attributes("/MaxPool_output_0", ceil_mode=0, pads=[1, 1, 1, 1]),), ("/MaxPool_output_0",),
          "The MaxPool pads 1 on every side with ceil_mode 0, in place of no padding with ceil_mode 1: its windows lie one pixel further left and up.", "ceil_mode replaced by symmetric padding; pooled map shifted by one pixel", "opencv/opencv#17966"),
    Fault("graph", (inputs("/Mul_7_output_0", {1: "/Constant_9_output_0"}), inputs("/Add_9_output_0", {1: "/Constant_10_output_0"})), ("/Mul_7_output_0",),
          "The normalization before layer_64_2's output Relu (Mul_7, Add_9) has scale and shift of another one of the same shape (Mul_4, Add_5): Constant_9 and 10 in place of 15 and 16.", "two batch norms of one shape share the constants of the first", "onnxsim/onnxsim#255"),
    Fault("graph", tuple(weight(f"lstm_fwd.cell.{name}", lambda v: _blocks(v, 0, (0, 3, 2, 1))) for name in ("weight_ih", "weight_hh", "bias_ih")), ("/lstm_fwd/cell/Gemm_1_output_0", "/lstm_fwd/cell/Add_output_0"),
          "Forget and output gate of the forward LSTM are exchanged: rows 100 to 199 and 300 to 399 of lstm_fwd.cell.weight_ih, weight_hh and bias_ih.", "gate blocks in the wrong order (i, o, g, f for i, f, g, o)"),
    Fault("graph", (identity("/Slice_1_output_0"),), ("/Slice_1_output_0",),
          "The outputs of the backward LSTM are not turned round in time: the Slice with step -1 (Slice_1) hands on its input.", "reverse direction's sequence left reversed", "microsoft/onnxruntime#4187"),
    Fault("graph", (weight("_conv.layer_128_2_conv2.weight", lambda v: v.swapaxes(2, 3)),), ("/layer_128_2_conv2/Conv_output_0",),
          "The kernels of layer_128_2_conv2 have height and width exchanged.", "3x3 kernels transposed"),
    Fault("outputs", (attributes("/layer_64_3_conv2/Conv_output_0", dilations=[2, 2], pads=[2, 2, 2, 2]),), ("/layer_64_3_conv2/Conv_output_0",),
          "The Conv layer_64_3_conv2 has dilation 2 (pads 2) in place of 1 (pads 1).", "too wide a kernel in layer_64_3_conv2"),
    Fault("outputs", (weight("/Constant_62_output_0", lambda v: np.concatenate([v[100:], v[:100]])),), ("/MatMul_output_0",),
          "The last MatMul takes forward and backward LSTM in the wrong order: the halves of its 200 rows are exchanged.", "Concat_1 with its inputs exchanged; rows 0 to 99 and 100 to 199 of Constant_62 swapped"),
    Fault("around", (), ("image",),
          "The image is given as RGB; the network wants BGR.", "channels 0 and 2 of the input exchanged", prepare=lambda s: {"image": np.ascontiguousarray(s["image"][:, ::-1])}),
    Fault("two", (operator("/Relu_4_output_0", "LeakyRelu", alpha=0.2), operand("/Add_output_0", 1, np.abs)), ("/Relu_4_output_0", "/Add_output_0"),
          "The Relu behind layer_64_2_conv1 (Relu_4) is LeakyRelu with slope 0.2, and the shift of the input's normalization (Add, Constant_2) has the opposite sign: 3.797, 1.581, 0.876 in place of -3.797, -1.581, -0.876.", "negative values pass in Relu_4; mean of the image added rather than subtracted"),
    Fault("two", (attributes("/layer_128_4_conv2/Conv_output_0", pads=[0, 0, 2, 2]), weight("/Constant_63_output_0", lambda v: v + 2.0 * (np.arange(37) == 36))), ("/layer_128_4_conv2/Conv_output_0", "logits"),
          "The Conv layer_128_4_conv2 pads 0 before and 2 behind in place of 1 and 1, and the bias of class 36, the blank, is larger by 2.", "kernel shifted by one pixel in layer_128_4_conv2; offset of 2 in logits[..., 36]", recorded=True),
    ),
    "seizure": (
    Fault("graph", _gates(("onnx::LSTM_363", "onnx::LSTM_364", "onnx::LSTM_362"), (0, 2, 3, 1)), ("/lstm/LSTM_output_0",),
          "The gates of the first LSTM are in PyTorch's order i, f, c, o in place of ONNX's i, o, f, c.", "gate blocks of onnx::LSTM_362, 363 and 364 permuted"),
    Fault("graph", (attributes("/conv1/Conv_output_0", pads=[0, 4, 0, 0]),), ("/conv1/Conv_output_0",),
          "The first Conv pads 4 frames before and 0 behind in place of 2 and 2: it looks only back.", "causal padding; conv1's output later by two frames"),
    Fault("graph", (attributes("probs", axis=0),), ("probs",),
          "The Softmax runs over axis 0 (time) in place of 2 (classes).", "probabilities normalized over frames; logits are right", "onnx/onnx-coreml#497"),
    Fault("graph", (attributes("/lstm/Transpose_output_0", perm=[0, 2, 3, 1]),), ("/lstm/Transpose_output_0", "/lstm/Reshape_output_0"),
          "Behind the first LSTM the directions are interleaved: its Transpose has perm 0, 2, 3, 1 in place of 0, 2, 1, 3, so that features alternate between forward and backward.", "hidden_size * num_directions in place of num_directions * hidden_size", "pytorch/pytorch#11368"),
    Fault("graph", (attributes("/lstm/LSTM_1_output_0", activations=["HardSigmoid", "Tanh", "Tanh"] * 2, activation_alpha=[0.2, 0.2], activation_beta=[0.5, 0.5]),), ("/lstm/LSTM_1_output_0",),
          "The second LSTM has HardSigmoid 0.2x + 0.5 for its gates in place of Sigmoid.", "Keras's hard_sigmoid as the recurrent activation of LSTM_1"),
    Fault("outputs", (weight("conv2.weight", lambda v: np.where(np.arange(96)[:, None] < 64, v, 0)),), ("/conv2/Conv_output_0",),
          "Rows 64 to 95 of the kernels of conv2 are zero: the upper third of the frequencies is not seen.", "conv2.weight cut off along its third axis"),
    Fault("outputs", (weight("onnx::LSTM_405", lambda v: np.where(np.arange(800) < 400, 0, v)),), ("/lstm/LSTM_1_output_0",),
          "The input biases of the second LSTM are missing: columns 0 to 399 of onnx::LSTM_405 are zero.", "Wb of LSTM_1 zero; only the recurrent bias is left"),
    Fault("around", (), ("x",),
          "The spectrogram is normalized once more, frame by frame: each frame has mean 0 and deviation 1 over its 100 bins.", "normalization over axis 1 of x; loudness of the frames lost", prepare=_per_frame),
    Fault("two", (weight("fc1.bias", lambda v: v + 1.0 * (np.arange(4) == 0)), identity("/Relu_output_0")), ("logits", "/Relu_output_0"),
          "The bias of class 0 in the last layer (fc1.bias[0]) is larger by 1, and the Relu behind conv1 is missing.", "offset in logits[..., 0]; negative values pass behind conv1"),
    Fault("two", (weight("conv2.bias", lambda v: 2 * v), weight("onnx::LSTM_406", lambda v: v * np.array([1, 0.5])[:, None, None])), ("/conv2/Conv_output_0", "/lstm/LSTM_1_output_0"),
          "The bias of conv2 is added twice, and the input weights of the backward direction of the second LSTM (onnx::LSTM_406[1]) are half as large.", "conv2.bias times 2; W of LSTM_1's second direction times 0.5"),
    ),
    "malware": (
    Fault("graph", (inputs("add_243", {1: "getitem_24"}),), ("add_243",),
          "The residual of layer2.1 is the inner result before its Relu (getitem_24) in place of the block's input (relu_6).", "Add add_243 reads the wrong tensor; skip connection from inside the block"),
    Fault("graph", (attributes("max_pool2d", pads=[0, 0, 2, 2]),), ("max_pool2d",),
          "The MaxPool pads 0 before and 2 behind in place of 1 and 1.", "pooling shifted by one pixel; TensorFlow's SAME", "onnx/onnxmltools#94"),
    Fault("graph", (weight("layer3.1.conv2.weight_bias", lambda _: 0),), ("getitem_33",),
          "The bias that batch normalization leaves behind when it is folded is missing in layer3.1.conv2: layer3.1.conv2.weight_bias is zero.", "Conv getitem_33 without its bias", "onnx/onnx#2677"),
    Fault("graph", (after("mean", "Mul", np.float32(49 / 64)),), ("mean",),
          "The mean over positions is divided by 64 in place of 49: the padded positions of an 8x8 map are counted.", "factor 0.7656 behind ReduceMean", "apache/mxnet#14345"),
    Fault("graph", (after("relu_5", "Clip", np.float32(0), np.float32(0.3)),), ("relu_5",),
          "The Relu behind layer2.0.conv1 (relu_5) saturates at 0.3: too small a range of calibration.", "relu_5 clipped to 0..0.3"),
    Fault("outputs", (weight("fc.weight", lambda v: _quantized(v, 3)),), ("logits",),
          "fc.weight is quantized to three bits with one scale for the whole tensor.", "the last Gemm's weights rounded to seven levels"),
    Fault("outputs", (weight("layer2.0.downsample.0.weight", lambda v: v[::-1]),), ("getitem_21",),
          "The output channels of layer2.0.downsample.0.weight are in reversed order, its bias is not.", "rows of the 1x1 convolution of the shortcut reversed"),
    Fault("around", (), ("input",),
          "The picture is scaled to -1..1 in place of ImageNet's mean and deviation.", "wrong normalization of the input", prepare=lambda s: {"input": (2 * (s["input"] * DEVIATION + MEAN) - 1).astype(np.float32)}),
    Fault("two", (identity("relu_8"), weight("layer4.1.conv1.weight_bias", lambda v: v + 0.3 * (np.arange(512) < 128))), ("relu_8", "getitem_42", "getitem_54"),
          "The Relu at the end of layer2 (relu_8) is missing, and the first 128 biases of layer4.1.conv1 are larger by 0.3.", "negative values pass behind add_243; an offset in a quarter of the channels of getitem_54"),
    Fault("two", (weight("layer1.0.conv2.weight", lambda v: swap_blocks(v, 1, 16)), weight("fc.bias", lambda v: np.where(np.arange(26) == 3, v + 1.5, v))), ("getitem_6", "logits"),
          "layer1.0.conv2.weight has neighbouring blocks of 16 input channels exchanged, and the bias of class 3 (fc.bias[3]) is larger by 1.5.", "channels of relu_1 permuted in blocks before layer1.0.conv2; offset in logits[:, 3]", recorded=True),
    ),
    "page": (
    Fault("graph", tuple(attributes(f"p2o.pd_op.hardsigmoid.{one}.0", alpha=1 / 6) for one in (6, 7, 8, 9)), tuple(f"p2o.pd_op.hardsigmoid.{one}.0" for one in (6, 7, 8, 9)),
          "The HardSigmoid of the four last squeeze-and-excitation blocks (6 to 9) has slope 1/6 in place of 0.2.", "alpha 0.1667 in hardsigmoid.6 to 9", "PaddlePaddle/Paddle2ONNX#930"),
    Fault("graph", (attributes("p2o.pd_op.nearest_interp.2.0", coordinate_transformation_mode="half_pixel"),), ("p2o.pd_op.nearest_interp.2.0",),
          "The Resize nearest_interp.2.0 has half_pixel coordinates in place of asymmetric, and still rounds down: its result is shifted by one pixel.", "coordinate_transformation_mode of one Resize", "NVIDIA/TensorRT#974"),
    Fault("graph", (weight("auto.cast.57", lambda v: v[:, :, ::-1, ::-1]),), ("ConvTranspose.1",),
          "The 2x2 kernels of the first ConvTranspose (auto.cast.57) are turned by 180 degrees.", "transposed convolution with flipped kernels"),
    Fault("graph", (inputs("p2o.pd_op.batch_norm_.1.0", {3: "batch_norm_1.w_1"}),), ("p2o.pd_op.batch_norm_.1.0",),
          "BatchNormalization batch_norm_.1.0 subtracts the mean of another one of the same shape: batch_norm_1.w_1 in place of batch_norm_0.w_1.", "wrong running mean", "onnxsim/onnxsim#255"),
    Fault("graph", (inputs("Concat.1", {0: "auto.cast.55", 1: "auto.cast.54", 2: "auto.cast.53", 3: "auto.cast.52"}),), ("Concat.1",),
          "The four inputs of Concat.1 are in reversed order.", "channels of the four levels in the wrong order"),
    Fault("outputs", (identity("Add.205"),), ("Add.205",),
          "The top-down path into the finest level is missing: Add.205 is add.99 alone, without nearest_interp.2.0.", "one Add of the feature pyramid dropped"),
    Fault("outputs", (weight("learnable_affine_block_2.w_0", lambda _: 1),), ("Mul.5",),
          "The learned scale learnable_affine_block_2.w_0 is 1 in place of 1.8875.", "affine scale of one block missing; Mul.5 too small by 0.53"),
    Fault("around", (), ("x",),
          "The image is not normalized: it lies in 0..1.", "mean and deviation missing", prepare=lambda s: {"x": (s["x"] * DEVIATION + MEAN).astype(np.float32)}),
    Fault("two", (weight("p2o.pd_op.reshape.53.0", lambda v: -v), operator("p2o.pd_op.hardswish.2.0", "Relu")), ("Add.233", "p2o.pd_op.hardswish.2.0"),
          "The bias of the last layer (reshape.53.0) is +0.2333 in place of -0.2333, and hardswish.2.0 is Relu.", "wrong sign of the last bias; another activation behind add.9"),
    Fault("two", (identity("Add.229"), attributes("p2o.pd_op.conv2d.47.0", pads=[2, 2, 0, 0])), ("Add.229", "p2o.pd_op.conv2d.47.0"),
          "The last squeeze-and-excitation block adds nothing (Add.229 is conv2d.44 alone), and the Conv conv2d.47.0 pads 2 before and 0 behind in place of 1 and 1.", "SE branch dropped; image shifted by one pixel in conv2d.47"),
    ),
    "denoise": (
    Fault("graph", (attributes("156", direction="reverse"),), ("156",),
          "The second GRU runs backwards in time (direction reverse).", "wrong direction of the GRU that writes 156", "PINTO0309/onnx2tf#287"),
    Fault("graph", (inputs("159", {0: "95"}),), ("159",),
          "The second GRU is skipped: the Transpose that writes 159 reads the first GRU's output (95) in place of the second's (158).", "only one recurrent layer; 159 read from 95"),
    Fault("graph", (operator("output", "HardSigmoid", alpha=0.2, beta=0.5),), ("output",),
          "The last Sigmoid is HardSigmoid 0.2x + 0.5.", "piecewise linear sigmoid at the output"),
    Fault("graph", (weight("193", lambda v: v.reshape(1, 3, 400, 400).swapaxes(2, 3).reshape(1, 1200, 400)),), ("93",),
          "The recurrent weights of the first GRU (193) are transposed within each gate.", "R of the first GRU transposed: h R in place of h R^T"),
    Fault("outputs", (weight("172", lambda v: np.roll(v, 1, 0)),), ("18",),
          "The rows of the first layer's weights (172) are shifted by one: bin k is taken with the weights of bin k-1.", "input bins off by one"),
    Fault("outputs", (weight("fc_in.0.bias", lambda v: 2 * v),), ("19",),
          "The bias of the first layer (fc_in.0.bias) is added twice.", "fc_in.0.bias times 2"),
    Fault("outputs", (weight("215", lambda v: _quantized(v, 7)),), ("161",),
          "The weights 215 of fc_out.0 are quantized to four bits with one scale for the whole tensor.", "MatMul 161 with coarsely rounded weights"),
    Fault("around", (), ("input",),
          "The features are natural logarithms in place of decadic ones: 2.3026 times too large.", "input scaled by ln 10", prepare=lambda s: {"input": (s["input"] * np.log(10)).astype(np.float32)}),
    Fault("around", (), ("output",),
          "The gain is limited from below to 0.1 (-20 dB in place of -80 dB).", "output clipped at 0.1", finish=lambda rows: [{"output": np.maximum(one["output"], np.float32(0.1))} for one in rows]),
    Fault("two", (identity("163"), weight("fc_out.4.bias", lambda v: v + 1.0 * (np.arange(161) >= 120))), ("163", "170"),
          "The Relu behind fc_out.0 (163) is missing, and the biases of the bins from 120 on (fc_out.4.bias) are larger by 1.", "negative values pass before MatMul 165; offset in the upper bins", recorded=True),
    ),
    "thai": (
    Fault("graph", (attributes("conv1d_1", dilations=[1], pads=[2, 2]),), ("conv1d_1",),
          "The second Conv (conv1d_1) has dilation 1 (pads 2) in place of 3 (pads 6).", "dilation ignored", "microsoft/onnxscript#3037"),
    Fault("graph", (operator("getitem", "ReduceMean", keepdims=0, noop_with_empty_axes=0),), ("getitem",),
          "The three branches are averaged in place of their maximum: ReduceMean for ReduceMax.", "another reduction over the stack"),
    Fault("graph", (attributes("conv1d_2", pads=[16, 0]),), ("conv1d_2",),
          "The third Conv (conv1d_2) pads 16 before and 0 behind in place of 8 and 8: it looks only back.", "causal padding; shifted by 8 characters"),
    Fault("graph", (inputs("stack_1", {2: "val_7"}),), ("stack_1",),
          "The stack takes the second branch twice and the third never: its input 2 is val_7 in place of val_9.", "conv1d_2 not used; wrong input of Concat"),
    Fault("outputs", (weight("model.embeddings.weight", lambda v: np.where(np.arange(48) < 32, v, 0)),), ("embedding",),
          "Columns 32 to 47 of the embeddings are zero: the last third of each vector is lost.", "model.embeddings.weight cut off"),
    Fault("outputs", (weight("model.conv2.conv.weight", lambda v: v[:, :, ::-1]),), ("conv1d_1",),
          "The kernels of the second Conv (model.conv2.conv.weight) are reversed in time.", "convolution in place of correlation in conv1d_1"),
    Fault("outputs", (weight("val_13", lambda v: np.clip(v, -0.2, 0.2)),), ("val_14",),
          "The weights of linear1 (val_13) are clipped to 0.2.", "saturated weights of MatMul val_14"),
    Fault("around", (), ("input",),
          "Tone marks (ids 130 to 134) come as <UNK> (1): the text was stripped of what the deployment's vocabulary lacks.", "five ids replaced by 1", prepare=lambda s: {"input": np.where((s["input"] > 129) & (s["input"] < 135), 1, s["input"])}),
    Fault("around", (), ("output",),
          "Probabilities come back in place of logits: a sigmoid is applied to the output.", "output passed through a sigmoid", finish=lambda rows: [{"output": (1 / (1 + np.exp(-one["output"]))).astype(np.float32)} for one in rows]),
    Fault("two", (operator("relu", "LeakyRelu", alpha=0.3), weight("model.conv3.conv.bias", lambda v: v + 0.5 * (np.arange(196) < 98))), ("relu", "conv1d_2"),
          "The Relu between the two last layers is LeakyRelu with slope 0.3, and the first 98 biases of the third Conv are larger by 0.5.", "negative values pass in relu; offset in half of the channels of conv1d_2"),
    ),
    "morph": (
    Fault("graph", (attributes(f"{_MORPH}/conv1d_1/convolution:0", auto_pad="NOTSET", pads=[0, 4, 0, 0]),), (f"{_MORPH}/conv1d_1/convolution:0",),
          "The first Conv (conv1d_1) pads 4 letters before and 0 behind in place of 2 and 2: it looks only back.", "causal for same padding"),
    Fault("graph", (attributes(f"{_MORPH}/morpheme_1/Softmax:0", axis=2),), (f"{_MORPH}/morpheme_1/Softmax:0",),
          "The Softmax runs over axis 2 (letters) in place of 1 (classes).", "probabilities normalized over the word", "apache/tvm#9078"),
    Fault("graph", (identity(f"{_MORPH}/conv1d_2_1/Relu:0"),), (f"{_MORPH}/conv1d_2_1/Relu:0",),
          "The Relu behind the third Conv (conv1d_2_1) is missing.", "negative values pass"),
    Fault("graph", (inputs(f"{_MORPH}/conv1d_3_1/BiasAdd:0", {1: "const_fold_opt__179"}),), (f"{_MORPH}/conv1d_3_1/BiasAdd:0",),
          "The fourth Conv (conv1d_3_1) adds the bias of the first one: const_fold_opt__179 in place of const_fold_opt__168.", "two biases of one shape confused", "onnxsim/onnxsim#255"),
    Fault("outputs", (weight(f"{_MORPH}/conv1d_1_2/convolution/ExpandDims_1:0", lambda v: v[..., ::-1]),), (f"{_MORPH}/conv1d_1_2/convolution:0",),
          "The kernels of the second Conv (conv1d_1_2) are reversed in time.", "convolution in place of correlation in conv1d_1_2"),
    Fault("outputs", (weight(f"{_MORPH}/embedding_1/GatherV2/ReadVariableOp:0", lambda v: np.where(np.arange(49)[:, None] < 23, v, v[1])),), (f"{_MORPH}/embedding_1/GatherV2:0",),
          "Embedding rows from 23 on (т to я, digits, hyphen) hold the row of <UNK> (1).", "vocabulary cut off at 23"),
    Fault("outputs", (weight(f"{_MORPH}/conv1d_3_1/convolution/ExpandDims_1:0", lambda v: v.swapaxes(0, 1)),), (f"{_MORPH}/conv1d_3_1/convolution:0",),
          "The square 1x1 weights of the fourth Conv (conv1d_3_1) are transposed.", "input and output channels exchanged"),
    Fault("around", (), ("input_layer",),
          "Ids above 3 are one too small: the deployment's vocabulary has no MASK.", "letters shifted by one in the embedding", prepare=lambda s: {"input_layer": np.where(s["input_layer"] > 3, s["input_layer"] - 1, s["input_layer"])}),
    Fault("around", (), ("output_0",),
          "Logarithms of the probabilities come back, none below log(0.0001).", "log-softmax in place of softmax", finish=_log),
    Fault("two", (weight("const_fold_opt__176", lambda v: v + 4 * (np.arange(27) == 8)[None, :, None]), operator(f"{_MORPH}/conv1d_4_1/Relu:0", "LeakyRelu", alpha=0.3)), (f"{_MORPH}/morpheme_1/BiasAdd:0", f"{_MORPH}/conv1d_4_1/Relu:0"),
          "The last bias of class 8, E-ROOT (const_fold_opt__176), is larger by 4, and the Relu behind conv1d_4_1 is LeakyRelu with slope 0.3.", "offset in one class before the Softmax; negative values pass in the last hidden layer"),
    ),
    "surrogate": (
    Fault("graph", (attributes("variable1", scale=[0.023106850683689117**2, 0.8944271802902222**2, 4.0, 0.3244428336620331**2]),), ("variable1",),
          "The Scaler divides by the variance in place of the deviation: its scale is squared.", "scale of the four features 0.000534, 0.8, 4, 0.1053 in place of 0.0231, 0.894, 2, 0.3244"),
    Fault("graph", (weight("coefficient1", lambda v: v.T),), ("mul_result1",),
          "The second layer multiplies by its transposed weight (coefficient1).", "square matrix transposed"),
    Fault("graph", (operator("next_activations", "Tanh"),), ("next_activations",),
          "The first activation is Tanh in place of Relu.", "another activation behind add_result"),
    Fault("graph", (inputs("add_result1", {1: "intercepts"}),), ("add_result1",),
          "The second layer adds the intercepts of the first one: intercepts in place of intercepts1.", "two biases of one shape confused", "onnxsim/onnxsim#255"),
    Fault("outputs", (weight("coefficient", lambda v: np.where(np.arange(4)[:, None] == 0, 0, v)),), ("mul_result",),
          "The first feature (n_neighbors) is not seen: row 0 of coefficient is zero.", "a dead input"),
    Fault("outputs", (identity("next_activations1"),), ("next_activations1",),
          "The second Relu is missing.", "negative values pass behind add_result1"),
    Fault("outputs", (weight("intercepts2", lambda _: 0),), ("add_result2",),
          "The last intercept (intercepts2, -0.0465) is missing.", "output too large by 0.0465; bias of the last layer zero"),
    Fault("around", (), ("input",),
          "The features come in alphabetical order: algorithm, cv, dataset, n_neighbors.", "columns 0 to 3 in the order 1, 3, 2, 0", prepare=lambda s: {"input": s["input"][:, [1, 3, 2, 0]]}),
    Fault("around", (), ("variable",),
          "The result is scaled to 0..1 by the range of the training's targets, -0.2379 to 0.4682.", "output shifted by 0.2379 and divided by 0.7061", finish=lambda rows: [{"variable": ((one["variable"] + 0.2378580) / 0.7060615).astype(np.float32)} for one in rows]),
    Fault("two", (weight("coefficient1", lambda v: np.clip(v, -0.15, 0.15)), weight("intercepts", lambda v: -v)), ("mul_result1", "add_result"),
          "The weights of the second layer (coefficient1) are clipped to 0.15, and the intercepts of the first one have the opposite sign.", "saturated weights; bias subtracted", recorded=True),
    ),
}
RIGHTS: dict[str, tuple[str, str, str, str]] = {
    "captcha": ("disabled", "half", "reexported", "float16"),
    "seizure": ("disabled", "opset", "renamed", "bfloat16"),
    "malware": ("basic", "renamed", "float16", "threads"),
    "page": ("disabled", "reexported", "half", "float16"),
    "denoise": ("threads", "opset", "renamed", "float16"),
    "thai": ("disabled", "optimized", "renamed", "float16"),
    "morph": ("disabled", "reexported", "opset", "basic"),
    "surrogate": ("basic", "opset", "renamed", "int8"),
}
