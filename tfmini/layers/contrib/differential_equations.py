"""``tf.contrib.integrate``: ordinary differential equations, by steps of Runge and Kutta."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import control_dependencies, name_scope
from tfmini.ops.array.filling import fill
from tfmini.ops.array.identity import cast, identity
from tfmini.ops.array.partition import where
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.debugging import Assert
from tfmini.ops.flow.tensor_array import TensorArray
from tfmini.ops.flow.while_loop import while_loop
from tfmini.ops.math.comparison import equal, greater, less, less_equal
from tfmini.ops.math.elementwise import maximum, minimum
from tfmini.ops.math.reductions import reduce_all, reduce_mean
from tfmini.ops.math.sums import add_n
from tfmini.ops.math.unary import abs as absolute
from tfmini.ops.math.unary import ceil, sqrt, square

Derivative = Callable[[Tensor, Tensor], TensorLike]

# The pair of Dormand and Prince (1980). The stages' times, and their weights of the stages before:
_TIMES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
_STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
# The last stage is the result, of order 5; this is its difference from that of order 4.
_ERROR = (
    *(35 / 384 - 1951 / 21600, 0.0, 500 / 1113 - 22642 / 50085, 125 / 192 - 451 / 720),
    *(-2187 / 6784 + 12231 / 42400, 11 / 84 - 649 / 6300, -1 / 60),
)
# The middle of a step, by Shampine (1986), of order 4.
_MIDDLE = (
    *(6025192743 / 30085553152 / 2, 0.0, 51252292925 / 65400821598 / 2, -2691868925 / 45128329728 / 2),
    *(187940372067 / 1594534317056 / 2, -1776094331 / 19743644256 / 2, 11237099 / 235043384 / 2),
)


class _State(NamedTuple):
    """Where an integration stands: the last step, from ``before`` to ``now``, and the next one's size."""

    y: Tensor
    slope: Tensor
    before: Tensor
    now: Tensor
    size: Tensor
    curve: tuple[Tensor, ...]  # the polynomial of the last step, from the highest power


class _History(NamedTuple):
    evaluations: Tensor
    points: TensorArray
    ratios: TensorArray


class _Control(NamedTuple):
    """How the sizes of steps follow from the errors."""

    rtol: Tensor
    atol: Tensor
    safety: Tensor
    ifactor: Tensor
    dfactor: Tensor
    max_num_steps: Tensor


def _sum(weights: Sequence[float], terms: Sequence[Tensor], scale: Tensor) -> Tensor:
    """The sum of terms by their weights, times a scale."""
    return add_n([term * (scale * weight) for weight, term in zip(weights, terms) if weight])


def _step(func: Derivative, state: _State) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, ...]]:
    """A step's result, its slope, its error, and the polynomial between."""
    y, start, size = state.y, state.now, state.size
    scale, slopes, following = cast(size, y.dtype), [state.slope], y
    with name_scope("runge_kutta_step"):
        for time, weights in zip(_TIMES, _STAGES):
            following = y + _sum(weights, slopes, scale)
            slopes.append(convert_to_tensor(func(following, start + time * size)))
        error = _sum(_ERROR, slopes, scale)
        middle = y + _sum(_MIDDLE, slopes, scale)
    return following, slopes[-1], error, _polynomial(y, following, middle, state.slope * scale, slopes[-1] * scale)


def _polynomial(y: Tensor, end: Tensor, middle: Tensor, rise: Tensor, fall: Tensor) -> tuple[Tensor, ...]:
    """That of order 4 with the values at 0, 1/2 and 1, and the slopes at 0 and 1."""
    with name_scope("interpolation"):
        fourth = -2.0 * rise + 2.0 * fall - 8.0 * y - 8.0 * end + 16.0 * middle
        third = 5.0 * rise - 3.0 * fall + 18.0 * y + 14.0 * end - 32.0 * middle
        second = -4.0 * rise + fall - 11.0 * y - 5.0 * end + 16.0 * middle
        return fourth, third, second, rise, y


def _value(state: _State, t: Tensor) -> Tensor:
    """The solution inside of the last step."""
    with name_scope("interp_evaluate"):
        x = cast((t - state.before) / (state.now - state.before), state.y.dtype)
        found = state.curve[0]
        for term in state.curve[1:]:
            found = found * x + term
        return found


def _ratio(error: Tensor, y: Tensor, following: Tensor, control: _Control) -> Tensor:
    """The mean square error, by the tolerance, as a root."""
    with name_scope("error_ratio"):
        tolerance = control.atol + control.rtol * maximum(absolute(y), absolute(following))
        return sqrt(reduce_mean(square(absolute(error)) / square(tolerance)))


def _next_size(size: Tensor, ratio: Tensor, control: _Control) -> Tensor:
    with name_scope("optimal_step_size"):
        share = cast(ratio, size.dtype) ** 0.2 / control.safety
        factor = maximum(1.0 / control.ifactor, minimum(share, 1.0 / control.dfactor))
        return where(equal(ratio, 0.0), size * control.ifactor, size / factor)


def _advanced(
    func: Derivative, state: _State, history: _History, steps: Tensor, control: _Control
) -> tuple[_State, _History]:
    """The state after one more step, or with a smaller size where the error was too large."""
    with name_scope("assertions"):
        small = Assert(greater(state.now + state.size, state.now), ["underflow in dt", state.size])
        many = Assert(less(steps, control.max_num_steps), ["max_num_steps exceeded"])
    with control_dependencies([small, many]):
        state = state._replace(y=identity(state.y))
    following, slope, error, curve = _step(func, state)
    ratio, reached = _ratio(error, state.y, following, control), state.now + state.size
    fits = less_equal(ratio, 1.0)

    def chosen(new: Tensor, old: Tensor) -> Tensor:
        return where(fits if new.shape.ndims == 0 else fill(shape_of(new), fits), new, old)

    with name_scope("update"):
        count = history.points.size()
        after = _State(
            chosen(following, state.y), chosen(slope, state.slope), where(fits, state.now, state.before),
            where(fits, reached, state.now), _next_size(state.size, ratio, control),
            tuple(chosen(*pair) for pair in zip(curve, state.curve)),
        )  # fmt: skip
        return after, _History(
            history.evaluations + 6, history.points.write(count, reached), history.ratios.write(count, ratio)
        )


def _until(
    func: Derivative, state: _State, history: _History, t: Tensor, control: _Control
) -> tuple[Tensor, _State, _History]:
    """The solution at a time, after the steps that reach it."""

    def body(state: _State, history: _History, steps: Tensor) -> tuple[_State, _History, Tensor]:
        return *_advanced(func, state, history, steps, control), steps + 1

    with name_scope("interpolate"):
        state, history, _ = while_loop(lambda state, *_: greater(t, state.now), body, (state, history, 0),
                                       name="integrate_loop")  # fmt: skip
        return _value(state, t), state, history


def _dopri5(
    func: Derivative, y0: Tensor, t: Tensor, rtol: TensorLike, atol: TensorLike, full_output: bool = False,
    first_step: TensorLike | None = None, safety: TensorLike = 0.9, ifactor: TensorLike = 10.0,
    dfactor: TensorLike = 0.2, max_num_steps: TensorLike = 1000,
) -> Any:  # fmt: skip
    """`odeint` by the pair of Dormand and Prince."""
    size = convert_to_tensor(1.0 if first_step is None else first_step, t.dtype, name="first_step")
    real = y0.dtype.real_dtype
    control = _Control(
        convert_to_tensor(rtol, real, name="rtol"), convert_to_tensor(atol, real, name="atol"),
        convert_to_tensor(safety, t.dtype, name="safety"), convert_to_tensor(ifactor, t.dtype, name="ifactor"),
        convert_to_tensor(dfactor, t.dtype, name="dfactor"),
        convert_to_tensor(max_num_steps, dtypes.int32, name="max_num_steps"),
    )  # fmt: skip
    with control_dependencies([_growing(t)]):
        count = shape_of(t)[0]
    slope = convert_to_tensor(func(y0, t[0]), name="f0")
    state = _State(y0, slope, t[0], t[0], size, (y0,) * 5)
    points, ratios = (TensorArray(kind, 0, dynamic_size=True) for kind in (t.dtype, real))
    history = _History(convert_to_tensor(1), points, ratios)
    values = TensorArray(y0.dtype, count).write(0, y0)

    def body(values: TensorArray, state: _State, history: _History, i: Tensor) -> tuple[object, ...]:
        y, state, history = _until(func, state, history, t[i], control)
        return values.write(i, y), state, history, i + 1

    values, state, history, _ = while_loop(lambda *loop: less(loop[-1], count), body, (values, state, history, 1),
                                           name="interpolate_loop")  # fmt: skip
    found = values.stack()
    found.set_shape(t.shape.concatenate(y0.shape))
    return (found, history) if full_output else found


def _growing(t: Tensor) -> Any:
    return Assert(reduce_all(greater(t[1:], t[:-1])), ["`t` must be monotonic increasing"])


def _start(y0: TensorLike) -> Tensor:
    y = convert_to_tensor(y0, name="y0")
    if not (y.dtype.is_floating or y.dtype.is_complex):
        raise TypeError("`y0` must have a floating point or complex floating point dtype")
    return y


@export("tf.contrib.integrate.odeint")
def odeint(
    func: Derivative, y0: TensorLike, t: TensorLike, rtol: TensorLike = 1e-06, atol: TensorLike = 1e-12,
    method: str | None = None, options: Mapping[str, Any] | None = None, full_output: bool = False,
    name: str | None = None,
) -> Any:  # fmt: skip
    """Solves dy/dt = func(y, t) from a start, with steps as large as errors allow (``tf.contrib.integrate.odeint``).

    Gradients go through all steps, to ``y0``, ``t`` and what ``func`` computes with.

    Args:
      func: from y and a scalar t to dy/dt, of y's shape and dtype.
      y0: y at ``t[0]``, floating or complex, of any shape.
      t: [n], growing; float64 unless it is a floating tensor.
      rtol, atol: the error allowed in each element of y, beside its size and absolute.
      method: None or dopri5, the pair of orders 4 and 5 of Dormand and Prince, with Shampine's polynomial
        between steps.
      options: beside a ``method`` only: ``first_step`` (1.0), ``safety`` (0.9), ``ifactor`` and ``dfactor``
        (10.0 and 0.2, by how much a step grows or shrinks at most) and ``max_num_steps`` (1000, from one of
        ``t`` to the next).
      full_output: returns also a dict of ``num_func_evals``, int32, and of each step its end,
        ``integrate_points``, and its error over that allowed, ``error_ratio``; a step above 1 is done again.

    Returns:
      [n, …], y at ``t``.

    Raises:
      ValueError: for another method, and for options without one.
      TypeError: for another option, and for ``y0`` and ``t`` of other dtypes.
      InvalidArgumentError: in a step, when ``t`` does not grow, and when the errors stay too large.
    """
    if method is not None and method != "dopri5":
        raise ValueError(f"invalid method: {method!r}")
    if method is None and options is not None:
        raise ValueError("cannot supply `options` without specifying `method`")
    with name_scope(name, "odeint") as scope:
        start = _start(y0)
        times = convert_to_tensor(t, preferred_dtype=dtypes.float64, name="t")
        if not times.dtype.is_floating:
            raise TypeError("`t` must have a floating point dtype")
        found = _dopri5(func, start, times, rtol, atol, full_output, **(options or {}))
        if not full_output:
            return identity(found, name=scope)
        y, history = found
        return identity(y, name=scope), {
            "num_func_evals": history.evaluations,
            "integrate_points": history.points.stack(),
            "error_ratio": history.ratios.stack(),
        }


def _midpoint(func: Derivative, y: Tensor, t: Tensor, size: Tensor) -> Tensor:
    scale = cast(size, y.dtype)
    half = y + convert_to_tensor(func(y, t)) * scale / 2.0
    return convert_to_tensor(func(half, t + size / 2.0)) * scale


def _rk4(func: Derivative, y: Tensor, t: Tensor, size: Tensor) -> Tensor:
    """The classic rule of order 4."""
    scale = cast(size, y.dtype)
    first = convert_to_tensor(func(y, t))
    second = convert_to_tensor(func(y + scale * first / 2.0, t + size / 2.0))
    third = convert_to_tensor(func(y + scale * second / 2.0, t + size / 2.0))
    fourth = convert_to_tensor(func(y + scale * third, t + size))
    return (first + 2.0 * (second + third) + fourth) * scale / 6.0


_FIXED: dict[str, Callable[[Derivative, Tensor, Tensor, Tensor], Tensor]] = {"midpoint": _midpoint, "rk4": _rk4}


@export("tf.contrib.integrate.odeint_fixed")
def odeint_fixed(
    func: Derivative,
    y0: TensorLike,
    t: TensorLike,
    dt: TensorLike | None = None,
    method: str = "rk4",
    name: str | None = None,
) -> Any:
    """Solves dy/dt = func(y, t) from a start, with steps of one size (``tf.contrib.integrate.odeint_fixed``).

    Args:
      func, y0: as in `odeint`.
      t: [n], growing; float64 unless it is a floating tensor.
      dt: the size of steps, a scalar or [n - 1], of ``t``'s dtype; it shrinks to a whole number of steps.
        Default: one step from one of ``t`` to the next.
      method: midpoint, or rk4, the classic rule of order 4.

    Returns:
      [n, …], y at ``t``.

    Raises:
      ValueError: for another method, and when ``t`` or ``dt`` have other shapes.
      TypeError: for ``y0`` of another dtype.
      InvalidArgumentError: in a step, when ``t`` does not grow.
    """
    with name_scope(name, "odeint_fixed"):
        times = convert_to_tensor(t, preferred_dtype=dtypes.float64, name="t")
        start = _start(y0)
        if times.shape.as_list() and len(times.shape) != 1 or times.shape.ndims == 0:
            raise ValueError("t must be a 1D tensor")
        if method not in _FIXED:
            raise ValueError(f"method not supported: {method}")
        spans = times[1:] - times[:-1]
        if dt is None:
            counts = fill(shape_of(spans), 1)
        else:
            sizes = convert_to_tensor(dt, preferred_dtype=dtypes.float64, name="dt")
            if sizes.shape.as_list() and len(sizes.shape) > 1:
                raise ValueError("dt must be a 0D or 1D tensor")
            counts = cast(ceil(spans / sizes), dtypes.int32)
        with name_scope(method), control_dependencies([_growing(times)]):
            return _on_grid(_FIXED[method], func, start, times, spans / cast(counts, times.dtype), counts)


def _on_grid(
    rule: Callable[..., Tensor], func: Derivative, y0: Tensor, t: Tensor, sizes: Tensor, counts: Tensor
) -> Tensor:
    """y at all times, with so many steps of these sizes between them."""
    values = TensorArray(y0.dtype, shape_of(t)[0]).write(0, y0)

    def body(y: Tensor, values: TensorArray, i: Tensor) -> tuple[object, ...]:
        size, start = sizes[i], t[i]

        def inner(y: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
            return y + rule(func, y, start + cast(k, t.dtype) * size, size), k + 1

        y, _ = while_loop(lambda _, k: less(k, counts[i]), inner, (y, 0))
        return y, values.write(i + 1, y), i + 1

    count = shape_of(sizes)[0]
    _, values, _ = while_loop(lambda y, values, i: less(i, count), body, (y0, values, 0))
    found: Tensor = values.stack()
    found.set_shape(t.shape.concatenate(y0.shape))
    return found
