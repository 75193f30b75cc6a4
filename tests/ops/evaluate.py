"""Evaluates tensors by calling kernels one by one, for tests of op families (no session, no devices)."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.ops.fake_wait import FakeWait
from tfmini.graph.op_types import Kernel, kernel_for
from tfmini.graph.operation import Operation, Tensor, node_of
from tfmini.runtime.compiler.kernels import ResultCheck

# Per graph: node name -> state object or kernel function, kept between calls like a session's.
KEPT: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()


class Resources:
    """The least that a state kernel may ask of a device's resource manager."""

    def __init__(self) -> None:
        self.table: dict[tuple[Any, ...], Any] = {}

    def lookup_or_create(self, container: str, name: str, create: Callable[[], Any], *_: Any) -> Any:
        key = (container, name)
        if key not in self.table:
            self.table[key] = create()
        return self.table[key]


def evaluate(tensors: Any, feeds: dict[Tensor, Any] | None = None) -> Any:
    """The values of a tensor, an operation (None), or a list or tuple of them, with ``feeds`` put in place.

    Variables and generators keep their state between calls on one graph.
    """
    if isinstance(tensors, (list, tuple)):
        if not tensors:
            return []
        run = _Run(tensors, feeds or {})
        return [run.fetch(t) for t in tensors]
    return _Run([tensors], feeds or {}).fetch(tensors)


class _Run:
    def __init__(self, fetches: Sequence[Any], feeds: dict[Tensor, Any]) -> None:
        self.values: dict[tuple[Operation, int], Any] = {}
        self.done: set[Operation] = set()
        self.kept = KEPT.setdefault(fetches[0].graph, {})
        self.resources = self.kept.setdefault(None, Resources())
        self.step = SimpleNamespace(id=0, step_id=0)
        for tensor, value in feeds.items():
            self.values[tensor.op, tensor.value_index] = np.asarray(value, tensor.dtype.numpy)

    def fetch(self, item: Any) -> Any:
        if isinstance(item, Operation):
            self._finish(item)
            return None
        self._finish(item.op, item)
        value = self.values[item.op, item.value_index]
        return value.read() if item.dtype != item.dtype.base_dtype and hasattr(value, "read") else value

    def _finish(self, target: Operation, wanted: Tensor | None = None) -> None:
        """Runs what ``target`` depends on, then itself, without recursion: graphs in tests can be deep."""
        if wanted is not None and (target, wanted.value_index) in self.values:
            return
        stack = [target]
        while stack:
            op = stack[-1]
            missing = [t.op for t in op.inputs if (t.op, t.value_index) not in self.values and t.op not in self.done]
            missing += [c for c in op.control_inputs if c not in self.done]
            if op in self.done:
                stack.pop()
            elif missing:
                stack.extend(missing)
            else:
                stack.pop()
                self._run(op)
                self.done.add(op)

    def _run(self, op: Operation) -> None:
        kernel = kernel_for(op.type, "CPU")
        if kernel is None:
            if op.type in ("NoOp",):
                return
            raise AssertionError(f"{op.type} has no CPU kernel")
        results = self._checked(op, kernel, self._call(op, kernel))
        if len(op.outputs) == 1 and not isinstance(results, tuple):
            results = (results,)
        for tensor, value in zip(op.outputs, results or ()):
            self.values.setdefault((op, tensor.value_index), value)  # a fed value stays

    def _call(self, op: Operation, kernel: Kernel) -> Any:
        with np.errstate(all="ignore"):
            if kernel.makes_state:
                if op not in self.kept:
                    self.kept[op] = kernel.function(self.resources, **self._bound(op, kernel))
                return self.kept[op]
            if kernel.is_factory:
                if op not in self.kept:
                    self.kept[op] = kernel.function(node_of(op))
                return self.kept[op](*self._arguments(op))
            if kernel.is_async:
                wait = FakeWait()
                kernel.function(wait, *self._arguments(op), **self._bound(op, kernel))
                assert not wait.is_pending, f"{op.name} waits for {wait.cause}"
                return wait.value
            first = [self.step] if kernel.wants_step else []
            return kernel.function(*first, *self._arguments(op), **self._bound(op, kernel))

    def _checked(self, op: Operation, kernel: Kernel, results: Any) -> Any:
        """What a kernel returned, once it has been compared with what its op declares."""
        if kernel.makes_state:
            return results
        return ResultCheck(node_of(op), [t.raw_shape for t in op.outputs])(results)

    def _bound(self, op: Operation, kernel: Kernel) -> dict[str, Any]:
        special = {"node": node_of(op), "resources": self.resources}
        return {name: special[name] if name in special else op.attrs[name] for name in kernel.bound}

    def _arguments(self, op: Operation) -> list[Any]:
        flat = iter(op.inputs)
        arguments: list[Any] = []
        for arg in op.handle.op_def.inputs:
            if not arg.is_list:
                arguments.append(self._input(next(flat), arg.is_ref))
                continue
            count = op.attrs[arg.number_attr] if arg.number_attr else len(op.attrs[arg.type_list_attr])  # type: ignore[index]
            arguments.append([self._input(next(flat), arg.is_ref) for _ in range(count)])
        return arguments

    def _input(self, tensor: Tensor, as_ref: bool) -> Any:
        value = self.values[tensor.op, tensor.value_index]
        if tensor.dtype != tensor.dtype.base_dtype and not as_ref and hasattr(value, "read"):
            return value.read()
        return value
