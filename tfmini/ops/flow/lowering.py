"""The ops of TensorArrays and stacks on devices: their state is the host's, the elements stay where they are.

The functions are for loops and conditionals that are compiled as a whole, with their arrays (`xla.whole.HeldArray`) and
stacks (`xla.whole.HeldStack`).
"""

from __future__ import annotations

import numpy as np

from tfmini.graph.lowering import lower, lower_on_host

lower_on_host("TensorArrayGradWithShape")

lower("TensorArrayV3", host="size", array="makes")(
    lambda held, size, *, node: (held.new_array(node, int(size)), np.float32(0))
)
lower("TensorArrayGradV3", array="changes")(lambda held, array, flow, *, source: (array.gradient(source), flow))
lower("TensorArrayWriteV3", array="changes")(lambda held, array, index, value, flow: array.write(index, value, flow))
lower("TensorArrayScatterV3", array="changes")(lambda held, array, at, values, flow: array.scatter(at, values, flow))
lower("TensorArraySplitV3", array="changes")(lambda held, array, value, sizes, flow: array.split(value, sizes, flow))
lower("TensorArrayReadV3", array="reads")(lambda held, array, index, flow: array.read(index))
lower("TensorArrayGatherV3", array="reads")(lambda held, array, indices, flow: array.gather(indices))
lower("TensorArrayConcatV3", array="reads")(lambda held, array, flow: array.concat())
lower("TensorArraySizeV3", array="reads", keeps_shape_only=True)(lambda held, array, flow: np.int32(array.size))
lower("StackV2", array="makes")(lambda held, size, *, node: held.new_stack(node))
lower("StackPushV2", array="changes")(lambda held, stack, value: stack.push(value))
lower("StackPopV2", array="changes")(lambda held, stack: stack.pop())
lower("TensorArrayCloseV3 StackCloseV2", array="reads")(lambda held, closed: ())
