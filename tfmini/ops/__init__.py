"""All ops: each family has a file of its own, from declaration to kernel and gradient.

The import of any of these modules imports all of them: operators, conversions and gradients of tensors are spread over
them, and the table of ops is whole afterwards. A new file needs no entry anywhere.
"""

from tfmini.graph.op_types import import_ops

import_ops(__name__)
