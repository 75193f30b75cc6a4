"""Functions with gradients defined by the user (``tf.custom_gradient``, ``tf.grad_pass_through``)."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable
from typing import Any

from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.families import Operation, Tensor, convert_to_tensor, get_default_graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.op_types import register_gradient
from tfmini.graph.prune import traverse
from tfmini.graph.scoping import get_collection
from tfmini.ops.array.identity import identity_n
from tfmini.ops.gradients import gradients
from tfmini.ops.variables.scope import get_variable_scope

_numbers = itertools.count()


@export("tf.custom_gradient")
def custom_gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a function that returns its result and its gradient function (``tf.custom_gradient``).

    ``f(*tensors)`` returns ``(result, grad_fn)``; ``grad_fn(*result_gradients)`` returns the gradients of the
    arguments. If ``f`` reads resource variables, ``grad_fn`` takes ``variables=`` and returns
    ``(argument gradients, variable gradients)``. It need not, where ``variables`` is a keyword with a default and the
    function reads none.

    Raises (when called):
      ValueError: for keyword arguments.
      TypeError: when ``f`` reads variables and ``grad_fn`` has no argument for them.
    """

    @functools.wraps(f)
    def decorated(*args: object, **kwargs: object) -> Any:
        if kwargs:
            raise ValueError(
                "The custom_gradient decorator currently supports keywords arguments only when eager execution is"
                " enabled."
            )
        return _apply(f, [convert_to_tensor(a) for a in args])

    return decorated


def _apply(f: Callable[..., Any], args: list[Tensor]) -> Any:
    result, grad_fn = f(*args)
    results = [convert_to_tensor(r) for r in nest.flatten(result)]
    variables = _variables_between(args, results)
    _check_signature(grad_fn, variables)
    name = f"CustomGradient-{next(_numbers)}"
    count = len(results)

    def gradient(node: Operation, *grads: object) -> list[Any]:
        given = grads[:count]
        if not variables:
            own, of_variables = grad_fn(*given), []
        else:
            own, of_variables = grad_fn(*given, variables=variables)
            if len(of_variables) != len(variables):
                raise ValueError("Must return gradient for each variable from @custom_gradient grad_fn.")
        return [*[None] * count, *nest.flatten(own), *of_variables]

    register_gradient(name, gradient)
    with get_default_graph().gradient_override_map({"IdentityN": name}):
        outputs = identity_n([*results, *args, *[v.handle for v in variables]])
    return nest.pack_sequence_as(result, outputs[:count])


def _check_signature(grad_fn: Callable[..., Any], variables: list[Any]) -> None:
    signature = inspect.getfullargspec(grad_fn)
    takes = "variables" in signature.args or "variables" in signature.kwonlyargs or signature.varkw is not None
    if variables and not takes:
        raise TypeError(
            "If using @custom_gradient with a function that uses variables, then grad_fn must accept a keyword"
            " argument 'variables'."
        )
    optional = "variables" in (signature.kwonlydefaults or {})
    if takes and not optional and not variables and not get_variable_scope().use_resource:
        raise TypeError(
            "If using @custom_gradient with a function that uses variables, the enclosing variable scope must have"
            " use_resource=True."
        )


def _variables_between(args: list[Tensor], results: list[Tensor]) -> list[Any]:
    """The trainable resource variables that the results depend on other than through the arguments.

    Raises:
      TypeError: when one of them is a reference variable.
    """
    stop = {a.op for a in args}

    def others(tensors: Iterable[Tensor]) -> list[Operation]:
        return [t.op for t in tensors if t.op not in stop]

    seen = set(traverse(others(results), lambda op: others(op.inputs)))
    found = [v for v in get_collection(GraphKeys.TRAINABLE_VARIABLES) if _handle_op(v) in seen]
    for variable in found:
        if variable.dtype._is_ref_dtype:
            raise TypeError(
                "All variables used by a function wrapped with @custom_gradient must be `ResourceVariable`s. Ensure"
                " that no `variable_scope` is created with `use_resource=False`."
            )
    return found


def _handle_op(variable: Any) -> Any:
    handle = getattr(variable, "handle", None)
    return variable.op if handle is None else handle.op


@export("tf.grad_pass_through")
def grad_pass_through(f: Callable[..., Any]) -> Callable[..., Any]:
    """``f`` in the forward pass, the identity in the backward pass (``tf.grad_pass_through``)."""

    @custom_gradient
    def identity_backwards(*args: Any) -> tuple[Any, Callable[..., Any]]:
        result = f(*args)
        count = len(_variables_between(list(args), list(result) if isinstance(result, (list, tuple)) else [result]))

        def grad(*grads: object) -> Any:
            return grads if len(grads) > 1 else grads[0]

        def grad_with_variables(*grads: Any, variables: Any) -> Any:
            return grad(*grads), [None] * len(variables)

        return result, grad_with_variables if count else grad

    return functools.wraps(f)(identity_backwards)


@export("tf.recompute_grad")
def recompute_grad(f: Callable[..., Any]) -> Callable[..., Any]:
    """``f``, whose gradient computes ``f`` again instead of keeping its intermediate values (``tf.recompute_grad``)."""

    @functools.wraps(f)
    def decorated(*args: object, **kwargs: object) -> Any:
        @custom_gradient
        def inner(*tensors: Any) -> tuple[Any, Callable[..., Any]]:
            def grad(*grads: Any) -> list[Any]:
                again = f(*tensors, **kwargs)
                return gradients(again, list(tensors), list(grads))

            return f(*tensors, **kwargs), grad

        return inner(*args)

    return decorated
