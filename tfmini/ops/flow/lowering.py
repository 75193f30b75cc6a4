"""The ops of TensorArrays and stacks on devices: their state is the host's, the elements stay where they are."""

from __future__ import annotations

from tfmini.graph.lowering import lower_on_host

lower_on_host(
    "TensorArrayV3 TensorArrayGatherV3 TensorArrayScatterV3 TensorArrayConcatV3 TensorArraySplitV3 TensorArraySizeV3"
    " TensorArrayCloseV3 TensorArrayGradV3 TensorArrayGradWithShape StackV2 StackCloseV2"
)
