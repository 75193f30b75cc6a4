"""Samples of the ops in tfmini/ops/nn."""

from typing import Any

from tests.ops.samples.notation import each

_FORMS = ("strides=[1, 1, 1, 1], padding='SAME'", "strides=[1, 2, 2, 1], padding='VALID'")
_CONVOLUTIONS = (
    *_FORMS,
    "strides=[1, 2, 1, 1], padding='SAME'",
    "strides=[1, 1, 1, 1], padding='VALID', dilations=[1, 2, 1, 1]",
    "strides=[1, 1, 2, 1], padding='EXPLICIT', explicit_paddings=[0, 0, 1, 2, 0, 1, 0, 0]",
)
_WINDOWS = (
    "ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding='VALID'",
    "ksize=[1, 3, 2, 1], strides=[1, 2, 1, 1], padding='SAME'",
    "ksize=[1, 1, 1, 2], strides=[1, 1, 1, 2], padding='VALID'",
)
_VOLUMES = ("strides=[1, 1, 1, 1, 1], padding='SAME'", "strides=[1, 2, 1, 1, 1], padding='VALID'")
_BOXES = tuple(f"ksize=[1, 2, 2, 1, 1], {form}" for form in _VOLUMES)
_MORPHOLOGY = (
    "strides=[1, 1, 1, 1], rates=[1, 1, 1, 1], padding='VALID'",
    "strides=[1, 2, 1, 1], rates=[1, 1, 2, 1], padding='SAME'",
)
_CLASSES = "true_classes=i64([[1], [5]]), num_true=1, num_sampled=4"
_NORMALIZED = "scale=f32(2, low=0.5), offset=f32(2)"
_TRAINING = f"x=f32(2, 3, 2, 2), {_NORMALIZED}, mean=f32([]), variance=f32([])"
_FIXED = f"x=f32(2, 3, 2, 2), {_NORMALIZED}, mean=f32(2), variance=f32(2, low=0.5), is_training=False, epsilon=0.01"
_NORMALIZATIONS = tuple(
    f"{op}({arguments})"
    for op in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
    for arguments in (_TRAINING, _FIXED, *([_FIXED.replace("x=f32", "x=f16")] if op[-1] != "m" else []))
)


def with_forms(call: str, forms: tuple[str, ...]) -> str:
    """A row per form, which takes the place of the dots in the call."""
    return "".join(call.replace("...", form) + "\n" for form in forms)


def one(tensor: Any, op: Any) -> Any:
    """Numbers in the form of a tensor whose form is wanted only."""
    return op.Cos(x=tensor)


SAMPLES = (
    each("Relu Relu6 Elu Selu LeakyRelu Softplus Softsign", "features=f32(2, 3)", "features=f16([-2, 0, 7])",
         "features=bf16([-1, 2])", "features=f64(3)")
    + each("Relu Relu6", "features=i32([-3, 0, 9])")
    + each("ReluGrad Relu6Grad LeakyReluGrad SoftplusGrad SoftsignGrad", "gradients=f32(2, 3), features=f32(2, 3)",
           "gradients=f16(3), features=f16(3)")
    + each("EluGrad SeluGrad", "gradients=f32(2, 3), outputs=f32(2, 3)", "gradients=f16(3), outputs=f16(3)")
    + each("LeakyRelu", "features=f32(3), alpha=0.5")
    + with_forms("...[0]", _NORMALIZATIONS)
    + each("FusedBatchNormGrad FusedBatchNormGradV2", "y_backprop=f32(2, 3, 2, 2), x=f32(2, 3, 2, 2), scale=f32(2), "
           "reserve_space_1=f32(2), reserve_space_2=f32(2, low=0.5)")
    # What becomes of the last two results, which nobody uses, is told differently by 1.15 and 2.21.
    + "FusedBatchNormGradV3(y_backprop=f32(2, 3, 2, 2), x=f32(2, 3, 2, 2), scale=f32(2), reserve_space_1=f32(2), "
    "reserve_space_2=f32(2, low=0.5), reserve_space_3=f32(2), is_training=False)[:3]\n"
    + each("BiasAdd BiasAddV1", "value=f32(2, 3), bias=f32(3)", "value=i32(2, 2, 3), bias=i32(3)")
    + each("Conv2D", *(f"input=f32(1, 5, 4, 2), filter=f32(3, 2, 2, 3), {form}" for form in _CONVOLUTIONS),
           "input=f32(1, 3, 3, 4), filter=f32(1, 1, 4, 2), strides=[1, 1, 1, 1], padding='SAME'")
    + each("DepthwiseConv2dNative", *(f"input=f32(1, 5, 5, 2), filter=f32(3, 2, 2, 2), {form}" for form in _FORMS))
    + with_forms("Conv2DBackpropInput(input_sizes=[1, 5, 4, 2], filter=(f := f32(3, 2, 2, 3)), "
                 "out_backprop=one(Conv2D(input=f32(1, 5, 4, 2), filter=f, ...), op), ...)", _CONVOLUTIONS[:3])
    + with_forms("Conv2DBackpropFilter(input=(x := f32(1, 5, 4, 2)), filter_sizes=[3, 2, 2, 3], "
                 "out_backprop=one(Conv2D(input=x, filter=f32(3, 2, 2, 3), ...), op), ...)", _CONVOLUTIONS[:3])
    + with_forms("DepthwiseConv2dNativeBackpropInput(input_sizes=[1, 5, 5, 2], filter=(f := f32(3, 2, 2, 2)), "
                 "out_backprop=one(DepthwiseConv2dNative(input=f32(1, 5, 5, 2), filter=f, ...), op), ...)", _FORMS)
    + with_forms("DepthwiseConv2dNativeBackpropFilter(input=(x := f32(1, 5, 5, 2)), filter_sizes=[3, 2, 2, 2], "
                 "out_backprop=one(DepthwiseConv2dNative(input=x, filter=f32(3, 2, 2, 2), ...), op), ...)", _FORMS)
    + with_forms("Conv3D(input=f32(1, 3, 4, 3, 2), filter=f32(2, 2, 3, 2, 2), ...)", _VOLUMES)
    + with_forms("Conv3DBackpropInputV2(input_sizes=[1, 3, 4, 3, 2], filter=(f := f32(2, 2, 3, 2, 2)), "
                 "out_backprop=one(Conv3D(input=f32(1, 3, 4, 3, 2), filter=f, ...), op), ...)", _VOLUMES)
    + with_forms("Conv3DBackpropFilterV2(input=(x := f32(1, 3, 4, 3, 2)), filter_sizes=[2, 2, 3, 2, 2], "
                 "out_backprop=one(Conv3D(input=x, filter=f32(2, 2, 3, 2, 2), ...), op), ...)", _VOLUMES)
    + with_forms("MaxPool(input=f32(2, 4, 5, 2), ...)", _WINDOWS)
    + with_forms("AvgPool(value=f32(2, 4, 5, 2), ...)", _WINDOWS[:2])
    + with_forms("MaxPoolGrad(orig_input=(x := f32(1, 4, 5, 2)), orig_output=(y := MaxPool(input=x, ...)), "
                 "grad=one(y, op), ...)", _WINDOWS[:2])
    + with_forms("MaxPoolGradGrad(orig_input=(x := f32(1, 4, 5, 2)), orig_output=MaxPool(input=x, ...), "
                 "grad=f32(1, 4, 5, 2), ...)", _WINDOWS[:2])
    + with_forms("AvgPoolGrad(orig_input_shape=[1, 4, 5, 2], grad=one(AvgPool(value=f32(1, 4, 5, 2), ...), op), ...)",
                 _WINDOWS[:2])
    + with_forms("MaxPoolWithArgmax(input=f32(2, 4, 5, 1), ...)", _WINDOWS[:2])
    + with_forms("MaxPoolWithArgmax(input=f32(2, 4, 5, 1), include_batch_in_index=True, Targmax=int32, ...)",
                 _WINDOWS[:1])
    + with_forms("x = f32(2, 4, 5, 1); y = MaxPoolWithArgmax(input=x, ...); "
                 "MaxPoolGradWithArgmax(input=x, grad=one(y[0], op), argmax=y[1], ...)", _WINDOWS[:2])
    + with_forms("MaxPool3D(input=f32(1, 3, 4, 2, 1), ...)", _BOXES)
    + with_forms("AvgPool3D(input=f32(1, 3, 4, 2, 1), ...)", _BOXES)
    + with_forms("MaxPool3DGrad(orig_input=(x := f32(1, 3, 4, 2, 1)), orig_output=(y := MaxPool3D(input=x, ...)), "
                 "grad=one(y, op), ...)", _BOXES)
    + with_forms("MaxPool3DGradGrad(orig_input=(x := f32(1, 3, 4, 2, 1)), orig_output=MaxPool3D(input=x, ...), "
                 "grad=f32(1, 3, 4, 2, 1), ...)", _BOXES)
    + with_forms("AvgPool3DGrad(orig_input_shape=[1, 3, 4, 2, 1], "
                 "grad=one(AvgPool3D(input=f32(1, 3, 4, 2, 1), ...), op), ...)", _BOXES)
    + with_forms("Dilation2D(input=f32(1, 4, 4, 2), filter=f32(2, 2, 2), ...)", _MORPHOLOGY)
    + with_forms("Dilation2DBackpropInput(input=(x := f32(1, 4, 4, 2)), filter=(f := f32(2, 2, 2)), "
                 "out_backprop=one(Dilation2D(input=x, filter=f, ...), op), ...)", _MORPHOLOGY)
    + with_forms("Dilation2DBackpropFilter(input=(x := f32(1, 4, 4, 2)), filter=(f := f32(2, 2, 2)), "
                 "out_backprop=one(Dilation2D(input=x, filter=f, ...), op), ...)", _MORPHOLOGY)
    + each("Softmax LogSoftmax", "logits=f32(2, 4)", "logits=f16(2, 3)", "logits=f64(1, 3)",
           "logits=f32([[900, -900]])")
    + r"""
BiasAddGrad(out_backprop=f32(2, 3, 2, 4))
BiasAddGrad(out_backprop=i32(2, 3))
L2Loss(t=f32(2, 3))
L2Loss(t=f16(3))
ComputeAccidentalHits(true_classes=i64([[1, 5], [5, 2]]), sampled_candidates=i64([5, 0, 1]), num_true=2)
CTCGreedyDecoder(inputs=f32(5, 2, 4), sequence_length=[5, 3])
CTCGreedyDecoder(inputs=f32(6, 1, 3), sequence_length=[6], merge_repeated=True)
CTCBeamSearchDecoder(inputs=f32(5, 2, 4), sequence_length=[5, 3], beam_width=8, top_paths=2, merge_repeated=False)
CTCBeamSearchDecoder(inputs=f32(4, 1, 3), sequence_length=[4], beam_width=4, top_paths=1)
CTCLoss(inputs=f32(6, 2, 4), labels_indices=i64([[0, 0], [0, 1], [1, 0]]), labels_values=[1, 2, 2],
    sequence_length=[6, 4])[0]
CTCLoss(inputs=f32(6, 1, 4), labels_indices=i64([[0, 0], [0, 1]]), labels_values=[2, 2], sequence_length=[6],
    preprocess_collapse_repeated=True, ctc_merge_repeated=False)[0]
MaxPool(input=i32(1, 4, 4, 1), ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding='VALID')
LRN(input=f32(1, 2, 2, 6), depth_radius=2, bias=1.5, alpha=0.3, beta=0.7)
LRNGrad(input_grads=f32(1, 2, 2, 6), input_image=(x := f32(1, 2, 2, 6)), output_image=LRN(input=x))
MaxPoolV2(input=f32(1, 4, 5, 2), ksize=[1, 2, 2, 1], strides=[1, 2, 1, 1], padding='SAME')
MaxPoolGradV2(orig_input=(x := f32(1, 4, 4, 2)), grad=f32(1, 2, 2, 2), ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1],
    orig_output=MaxPoolV2(input=x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding='VALID'), padding='VALID')
MaxPoolGradGradV2(orig_input=(x := f32(1, 4, 4, 2)), grad=f32(1, 4, 4, 2), ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1],
    orig_output=MaxPoolV2(input=x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding='VALID'), padding='VALID')
FractionalMaxPool(value=f32(2, 7, 9, 2), pooling_ratio=[1, 1.4, 2.5, 1], deterministic=True, seed=3, seed2=1)[0]
FractionalMaxPool(value=i64(1, 8, 5, 1), pooling_ratio=[1, 1.7, 1, 1], overlapping=True, deterministic=True,
    seed=1)[0]
FractionalAvgPool(value=f32(2, 7, 9, 2), pooling_ratio=[1, 1.4, 2.5, 1], overlapping=True, deterministic=True,
    seed=2)[0]
FractionalAvgPool(value=i32(1, 8, 9, 1), pooling_ratio=[1, 1.7, 3, 1], pseudo_random=True, deterministic=True,
    seed=4)[0]
FractionalMaxPoolGrad(orig_input=f32(1, 4, 5, 2), orig_output=f32(1, 2, 3, 2), out_backprop=f32(1, 2, 3, 2),
    row_pooling_sequence=i64([0, 2, 4]), col_pooling_sequence=i64([0, 1, 3, 5]), overlapping=True)
FractionalAvgPoolGrad(orig_input_tensor_shape=i64([1, 4, 5, 2]), out_backprop=f32(1, 2, 3, 2),
    row_pooling_sequence=i64([0, 2, 4]), col_pooling_sequence=i64([0, 1, 3, 5]), overlapping=True)
SoftmaxCrossEntropyWithLogits(features=f32(2, 4), labels=f32([[0.1, 0.2, 0.3, 0.4], [1, 0, 0, 0]]))[0]
SoftmaxCrossEntropyWithLogits(features=f16(2, 3), labels=f16(2, 3, low=0))
SparseSoftmaxCrossEntropyWithLogits(features=f32(3, 4), labels=[2, 0, 3])
SparseSoftmaxCrossEntropyWithLogits(features=f64(1, 3), labels=i64([1]))
"""
)  # fmt: skip

NO_SLOPE = (
    # Only the gradients of the normalized values and of the losses flow back.
    with_forms("...", tuple(call for call in _NORMALIZATIONS if "is_training" not in call))
    + r"""
CTCLoss(inputs=f32(6, 2, 4), labels_indices=i64([[0, 0], [0, 1], [1, 0]]), labels_values=[1, 2, 2],
    sequence_length=[6, 4])[1]
gradients(SoftmaxCrossEntropyWithLogits, features=f32(2, 4), labels=f32([[0.1, 0.2, 0.3, 0.4], [1, 0, 0, 0]]))
SoftmaxCrossEntropyWithLogits(features=f32(2, 4), labels=f32([[0.1, 0.2, 0.3, 0.4], [1, 0, 0, 0]]))
"""
)

SHAPES = (
    # Its own random numbers.
    each("UniformCandidateSampler LogUniformCandidateSampler LearnedUnigramCandidateSampler",
           f"{_CLASSES}, unique=True, range_max=20, seed=3, seed2=4", f"{_CLASSES}, unique=False, range_max=9, seed=5")
    + each("FixedUnigramCandidateSampler",
           f"{_CLASSES}, unique=True, range_max=6, unigrams=[1.0, 3, 2, 9, 4, 1], seed=3",
           f"{_CLASSES}, unique=False, range_max=7, unigrams=[1.0, 3, 2, 9, 4, 1], num_reserved_ids=1, distortion=0.5, "
           "seed=3, seed2=4")
    + each("AllCandidateSampler", "true_classes=i64([[1], [2]]), num_true=1, num_sampled=4, unique=True, seed=3")
)  # fmt: skip

OURS = (
    # TensorFlow computes NCHW on GPUs only, and half of these in no other type than float.
    each("BiasAdd", "value=f32(2, 3, 2, 2), bias=f32(3), data_format='NCHW'")
    + each("BiasAddGrad", "out_backprop=f32(2, 3, 2, 2), data_format='NCHW'")
    + each("Conv2D", "input=f32(1, 2, 5, 4), filter=f32(3, 2, 2, 3), strides=[1, 1, 2, 1], padding='SAME', "
           "data_format='NCHW'")
    + each("MaxPool", "input=f32(1, 2, 4, 4), ksize=[1, 1, 2, 2], strides=[1, 1, 2, 2], padding='VALID', "
           "data_format='NCHW'")
    + each("AvgPool", "value=f32(1, 2, 4, 4), ksize=[1, 1, 2, 2], strides=[1, 1, 2, 2], padding='SAME', "
           "data_format='NCHW'")
    + r"""
# Of these it has no kernel at all for CPUs, or none any more.
CTCLossV2(inputs=f32(6, 2, 4), labels_indices=i64([[0, 0], [0, 1], [1, 0]]), labels_values=[1, 2, 2],
    sequence_length=[6, 4])[0]
MaxPoolGradGradWithArgmax(input=(x := f32(2, 4, 4, 1)), grad=f32(2, 4, 4, 1),
    argmax=MaxPoolWithArgmax(input=x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding='VALID')[1],
    ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding='VALID')
BatchNormWithGlobalNormalization(t=f32(2, 2, 2, 3), m=f32(3), v=f32(3, low=0.5), beta=f32(3), gamma=f32(3),
    variance_epsilon=0.001, scale_after_normalization=True)
BatchNormWithGlobalNormalizationGrad(t=f32(2, 2, 2, 3), m=f32(3), v=f32(3, low=0.5), gamma=f32(3),
    backprop=f32(2, 2, 2, 3), variance_epsilon=0.001, scale_after_normalization=False)
"""
)  # fmt: skip
