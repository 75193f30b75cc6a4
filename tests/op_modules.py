"""Which module of tfmini declares which op, for tests that look at families of ops."""

from __future__ import annotations

import functools
import json
import subprocess
import sys

# In a process of its own: here the ops are imported already, and other tests declare ops.
_RECORD = """
import json, sys
from tfmini.graph import op_types, registry

modules, declare = {}, registry.op

def op(text, **given):
    handle = declare(text, **given)
    caller = sys._getframe(1)
    if caller.f_globals["__name__"] == "tfmini.ops.waiting_line":  # `state_op`, for another module
        caller = caller.f_back
    modules[handle.name] = caller.f_globals["__name__"]
    return handle

registry.op = op
op_types.load_ops()
print(json.dumps(modules))
"""


@functools.cache
def op_modules() -> dict[str, str]:
    """Returns the name of the declaring module for each of tfmini's own ops."""
    done = subprocess.run([sys.executable, "-c", _RECORD], capture_output=True, text=True, timeout=200, check=True)
    modules: dict[str, str] = json.loads(done.stdout)
    return modules


def room_of(op: str) -> str:
    """Returns the folder in `tfmini/ops` of the module that declares an op, or the module's package."""
    _, package, *inner = op_modules()[op].split(".")
    return inner[0] if package == "ops" and len(inner) > 1 else package
