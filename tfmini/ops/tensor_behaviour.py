"""Imports what gives tensors their behaviour: operators, indexing, conversions, gradients of control flow.

Each of these modules registers something with a class or table of a module below it when it is imported. A program
that has tensors needs all of them; one that only serves tensors to others (a ps) needs none.
"""

from __future__ import annotations

import tfmini.graph.building  # calls of op handles
import tfmini.ops.array.constant  # conversion of Python values and arrays
import tfmini.ops.array.joining  # conversion of lists of tensors
import tfmini.ops.array.slicing  # tensor[...]
import tfmini.ops.flow.context_protos  # conditionals and loops in MetaGraphs
import tfmini.ops.flow.flow_ops  # sparse tensors in nests
import tfmini.ops.flow.gradients  # gradients of conditionals and loops
import tfmini.ops.flow.tensor_array_gradients
import tfmini.ops.math.indexed_slices  # conversion of IndexedSlices
import tfmini.ops.math.operators  # tensor + tensor
import tfmini.ops.math.sums  # conversion of IndexedSlices
import tfmini.ops.sparse.arithmetic  # sparse * dense
import tfmini.ops.variables.functions  # variables in MetaGraphs
import tfmini.ops.variables.read_gradients
import tfmini.ops.variables.ref_variable
import tfmini.ops.variables.resource_variable
import tfmini.ops.variables.sliced_assignment  # noqa: F401 - variable[...].assign
