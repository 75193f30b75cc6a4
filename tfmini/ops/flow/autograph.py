"""AutoGraph: in a converted function, ``if``, ``while`` and ``for`` on tensors are conds and loops of the graph.

The package diastatic-malt, which is TensorFlow's AutoGraph without TensorFlow's operators, converts the source. Here
are the operators, by the names that converted code calls, and `call`, which converts a function and calls it. Where
no tensor decides, each operator does what Python does.
"""

from __future__ import annotations
import __future__

import ast
import dis
import functools
import inspect
import logging
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.errors import OperatorNotAllowedInGraphError
from tfmini.graph import nest, raw_ops
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.families import control_dependencies
from tfmini.graph.operation import Tensor
from tfmini.ops.array.constant import constant
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.filling import range as tensor_range
from tfmini.ops.array.filling import zeros
from tfmini.ops.array.identity import cast, identity, is_tensor, placeholder_with_default
from tfmini.ops.array.shape import shape
from tfmini.ops.debugging import Assert
from tfmini.ops.flow.cond import cond
from tfmini.ops.flow.functional import FunctionGraph
from tfmini.ops.flow.tensor_array import TensorArray
from tfmini.ops.flow.while_loop import while_loop
from tfmini.ops.math.elementwise import maximum
from tfmini.ops.py_func import py_func

REMEDY = "pip install 'tfmini-cluster[autograph]'"
_log = logging.getLogger("tensorflow")
_is_on: ContextVar[bool] = ContextVar("autograph", default=True)
# Packages whose functions are called as they are; a user's package may have the name of one of Python's own tests.
_LIBRARIES = {*sys.stdlib_module_names, "tfmini", "tensorflow", "tf_slim", "keras", "malt", "numpy", "scipy"}
_LIBRARIES |= {"absl", "h5py", "matplotlib", "pandas", "PIL", "pytest", "six", "tensorflow_probability"}
_LIBRARIES -= {"test", "this"}
Function = Callable[..., Any]

# ---- calls ---------------------------------------------------------------------------------------------------------


def call(
    function: Function, args: Sequence[Any], kwargs: dict[str, Any], requested: bool = False, recursive: bool = True,
    features: Any = None,
) -> Any:  # fmt: skip
    """What the converted function returns; if ``recursive``, the user's functions that it calls are converted as well.

    Inside of ``switched(False)`` the function is called as it is, unless its conversion is ``requested``.

    Raises:
      OperatorNotAllowedInGraphError: a tensor decides, and diastatic-malt is absent.
    """
    if not requested and not _is_on.get() or not _decides(getattr(function, "__code__", None)):
        return function(*args, **kwargs)
    try:
        options = _options(requested, recursive, _names(features))
    except ImportError:
        try:
            return function(*args, **kwargs)
        except OperatorNotAllowedInGraphError as error:
            raise OperatorNotAllowedInGraphError(f"{error} AutoGraph makes it a cond or loop: {REMEDY}") from error
    with switched(True):
        return converted_call(function, tuple(args), kwargs, options=options)


@contextmanager
def switched(on: bool) -> Iterator[None]:
    """While it lasts, functions are converted, or are not."""
    token = _is_on.set(on)
    try:
        yield
    finally:
        _is_on.reset(token)


def mark(function: Any) -> Any:
    """The function, marked as one that is not to be converted (again)."""
    getattr(function, "__func__", function).autograph_info__ = None
    return function


def converted(function: Function, recursive: bool = True, features: Any = None) -> Function:
    """The converted function; its attribute ``ag_source`` is its source.

    Raises:
      ImportError: diastatic-malt is absent.
      ValueError: the function has no source, or it has statements that cannot be converted.
    """
    try:
        options = _options(True, recursive, _names(features))
    except ImportError as error:
        raise ImportError(f"AutoGraph needs diastatic-malt: {REMEDY}.") from error
    if not hasattr(function, "__code__"):
        raise ValueError(f"{function} is no Python function. Of a tf.function, give its python_function.")
    try:
        return mark(_transpiler().transform_function(function, options))  # type: ignore[no-any-return]
    except Exception as error:
        raise ValueError(f"AutoGraph cannot convert {function}: {error}") from error


def converted_call(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, scope: Any = None, options: Any = None
) -> Any:
    """A call in converted code."""
    kwargs, options = kwargs or {}, options or scope.callopts
    if isinstance(function, functools.partial):
        return converted_call(function.func, function.args + args, {**function.keywords, **kwargs}, scope, options)
    if inspect.isbuiltin(function) or isinstance(function, type):
        return _call_builtin(function, args, kwargs, scope)
    made = _converted(function, options) if _is_on.get() and options.internal_convert_user_code else None
    return (made or function)(*args, **kwargs)


def _call_builtin(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], scope: Any) -> Any:
    from malt.operators import py_builtins as frames

    if function is eval:
        return frames.eval_in_original_context(function, args, scope)
    if function is super:
        return frames.super_in_original_context(function, args, scope)
    if function is globals:
        return frames.globals_in_original_context(scope)
    if function is locals:
        return frames.locals_in_original_context(scope)
    return _BUILTINS.get(function, function)(*args, **kwargs)


def _converted(function: Any, options: Any) -> Function | None:
    """The function converted; None if it is to be called as it is."""
    is_plain = inspect.isfunction(function) or inspect.ismethod(function)
    found = function if is_plain else getattr(type(function), "__call__", None)  # noqa: B004
    code = getattr(found, "__code__", None)
    if code is None or not _decides(code) or code in _failed or hasattr(function, "autograph_info__"):
        return None
    if code.co_filename == "<string>" or inspect.isgeneratorfunction(found):
        return None
    if not options.user_requested and (found.__module__ or "").partition(".")[0] in _LIBRARIES:
        return None
    try:
        made = _transpiler().transform_function(found, options)
    except Exception as error:  # of malt, which names no class
        _failed.add(code)
        _log.warning("AutoGraph could not convert %s, which runs as it is: %s", function, error)
        return None
    instance = getattr(function, "__self__", None) if is_plain else function
    return made if instance is None else functools.partial(made, instance)


def _decides(code: types.CodeType | None) -> bool:
    """Whether there is something in it that a conversion changes: a call, a jump or a negation."""
    return code is None or any(
        one.opcode in _JUMPS or one.opname.startswith(("CALL", "MAKE_FUNCTION", "UNARY_NOT"))
        for one in dis.get_instructions(code)
    )


_JUMPS = {*dis.hasjrel, *dis.hasjabs}
_failed: weakref.WeakSet[types.CodeType] = weakref.WeakSet()

# ---- conversion ----------------------------------------------------------------------------------------------------


def _names(features: Any) -> frozenset[str]:
    return frozenset(feature.name for feature in nest.flatten(features) if feature)


def _options(requested: bool, recursive: bool, features: frozenset[str]) -> Any:
    from malt.core.converter import ConversionOptions, Feature

    known = {"BUILTIN_FUNCTIONS", "EQUALITY_OPERATORS", "LISTS"}
    # Assertions are always converted: of one on a tensor, Python can make nothing but an error.
    wanted = [Feature[name] for name in ("ASSERT_STATEMENTS", *(known if "ALL" in features else known & features))]
    return ConversionOptions(recursive=recursive, user_requested=requested, optional_features=wanted)


@functools.cache
def _transpiler() -> Any:
    from malt.core.converter import ProgramContext
    from malt.impl import api
    from malt.pyct import cache, transpiler

    class Transpiler(api.PyToPy):
        """Converts each function once; the code that it makes has the file and the lines of the user's."""

        def __init__(self) -> None:
            super().__init__()
            self._made, self._lock = cache.CodeObjectCache(), threading.RLock()

        def get_transformed_name(self, node: ast.AST) -> str:
            name: str = super().get_transformed_name(node)
            return f"tf__{name.removeprefix('ag__')}"

        def transform_function(self, function: Any, options: Any) -> Any:
            with self._lock:
                if not self._made.has(function, options):
                    made = transpiler.GenericTranspiler.transform_function(self, function, ProgramContext(options))
                    self._made[function][options] = (*_compiled(function.__code__, *made), made[1].info.name)
                code, source, name = self._made[function][options]
            cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
            closure = tuple(cells[free] for free in code.co_freevars)
            made = types.FunctionType(code, function.__globals__, name, (), closure)(_operators())
            made.__defaults__, made.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
            made.ag_source = source
            return made

    return Transpiler()


def _compiled(original: types.CodeType, node: Any, context: Any) -> tuple[types.CodeType, str]:
    """The code of a function that makes the converted one in the scope of the original, and the converted source."""
    from malt.pyct import origin_info, parser

    name = context.info.name
    if isinstance(node, ast.Lambda):
        node = ast.Assign([ast.Name(name, ast.Store())], node)
    else:
        node.name = name
    source = parser.unparse(node, include_encoding_marker=False)
    origins = origin_info.create_source_map([node], source, original.co_filename)
    lines = [original.co_firstlineno]
    for line in range(1, source.count("\n") + 2):
        origin = origins.get(origin_info.LineLocation(original.co_filename, line))
        lines.append(lines[-1] if origin is None else origin.loc.lineno)
    body = ast.parse(source)
    for part in ast.walk(body):
        if hasattr(part, "lineno"):
            part.lineno = part.end_lineno = lines[part.lineno]  # type: ignore[attr-defined]
            part.col_offset = part.end_col_offset = 0  # type: ignore[attr-defined]
    free = "; ".join(f"{variable} = None" for variable in original.co_freevars) or "pass"
    tree = ast.parse(f"def outer():\n {free}\n def inner(ag__):\n  return {name}\n return inner")
    inner: Any = tree.body[0].body[-2]  # type: ignore[attr-defined]
    inner.body[:0] = body.body
    flags = original.co_flags & __future__.annotations.compiler_flag
    made: dict[str, Any] = {}
    exec(compile(tree, original.co_filename, "exec", flags=flags, dont_inherit=True), made)
    return made["outer"]().__code__, source


@functools.cache
def _operators() -> Any:
    """What converted code knows as ``ag__``."""
    import malt.operators
    from malt.core import converter
    from malt.impl.api import autograph_artifact

    class FunctionScope(malt.operators.FunctionScope):
        def ret(self, value: Any, did_return: Any) -> Any:
            """A loop returned the value if the flag is set; it is an error of the step if it is not."""
            value = super().ret(value, did_return)
            if value is None or not isinstance(did_return, Tensor):
                return value
            with control_dependencies([Assert(did_return, [f"{self.name}: no return statement was reached."])]):
                return nest.map_structure(identity, value, expand_composites=True)

    ours: dict[str, Any] = {operator.__name__: operator for operator in _STATEMENTS}
    ours |= {"FunctionScope": FunctionScope, "converted_call": converted_call, "autograph_artifact": autograph_artifact}
    ours |= {"ConversionOptions": converter.ConversionOptions, "Feature": converter.Feature}
    return types.SimpleNamespace(**{**vars(malt.operators), **ours})


# ---- what a statement changes --------------------------------------------------------------------------------------

_NOT_STAGED = object()
_BRANCHES = ("in the TRUE branch", "in the FALSE branch")
_ROUNDS = ("before the loop", "after one iteration")


class Symbols:
    """The symbols that a statement changes, by their positions.

    Attributes:
      begin: their values before it.
    """

    def __init__(self, get_state: Function, set_state: Function, names: Sequence[str]) -> None:
        self.get, self.set, self.names = get_state, set_state, names
        self.begin: tuple[Any, ...] = get_state()

    def put(self, values: dict[int, Any]) -> None:
        """Gives symbols values, and all others those of before."""
        self.set(tuple(values.get(index, value) for index, value in enumerate(self.begin)))

    def staged(self) -> dict[int, Any]:
        """The values of before, as tensors, of symbols that a loop can change; ValueError if one has no value."""
        undefined = [name for name, value in zip(self.names, self.begin) if _is_a(value, "Undefined")]
        if undefined:
            raise ValueError(f"A tensor decides how often a loop runs, before which these have no value: {undefined}.")
        found = {index: _staged(value) for index, value in enumerate(self.begin)}
        return {index: value for index, value in found.items() if value is not _NOT_STAGED}

    def after_round(self, begin: dict[int, Any]) -> list[Any]:
        """The values now of the symbols of ``begin``; TypeError and ValueError if they do not fit these, see `like`."""
        first = [begin.get(index, value) for index, value in enumerate(self.begin)]
        ends = [self.like(index, one, value, _ROUNDS) for index, (one, value) in enumerate(zip(first, self.get()))]
        return [ends[index] for index in begin]

    def like(self, index: int, first: Any, value: Any, when: tuple[str, str]) -> Any:
        """``value`` as tensors of the structure and types of ``first``; TypeError if it has others."""
        name, staged = self.names[index], _staged(value)
        if _is_a(first, "Undefined") != _is_a(value, "Undefined"):
            missing = when[_is_a(value, "Undefined")]
            raise ValueError(f"{name!r} must also be given a value {missing}, or before the statement.")
        if _is_a(first, "UndefinedReturnValue") != _is_a(value, "UndefinedReturnValue"):
            missing = when[_is_a(value, "UndefinedReturnValue")]
            raise ValueError(f"A value must also be returned {missing}: a tensor decides which of them runs.")
        if first is value or _is_a(first, "UndefinedReturnValue") or _is_a(first, "Undefined"):
            return first
        before = _staged(first)
        if staged is _NOT_STAGED or before is _NOT_STAGED:
            raise TypeError(
                f"{name!r} is {first!r} {when[0]} and {value!r} {when[1]}: as a tensor decides, both must be tensors."
            )
        try:
            nest.assert_same_structure(before, staged, expand_composites=True)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name!r} has not the same structure {when[0]} and {when[1]}: {error}") from None
        for one, other in zip(nest.flatten(before), nest.flatten(staged)):
            if one.dtype.base_dtype is not other.dtype.base_dtype:
                raise TypeError(f"{name!r} has dtype {one.dtype.name} {when[0]}, but {other.dtype.name} {when[1]}.")
            if when is _ROUNDS and isinstance(one, Tensor) and not _is_at_most(other.raw_shape, one.raw_shape):
                raise ValueError(f"{name!r} has shape {one.shape} {when[0]}, but {other.shape} {when[1]}.")
        return staged


def _is_a(value: object, kind: str) -> bool:
    return type(value).__name__ == kind and type(value).__module__ == "malt.operators.variables"


def _is_at_most(shape: Any, bound: Any) -> bool:
    if bound is None:
        return True
    return shape is not None and len(shape) == len(bound) and all(b in (None, s) for s, b in zip(shape, bound))


def _staged(value: Any) -> Any:
    """The value with tensors for numbers, texts and arrays; `_NOT_STAGED` if there is something else in it."""
    if value is None or type(value).__module__ == "malt.operators.variables":
        return _NOT_STAGED
    try:
        return nest.map_structure(_tensor, value)
    except (TypeError, ValueError):
        return _NOT_STAGED


def _tensor(leaf: Any) -> Any:
    is_whole = isinstance(leaf, (Tensor, TensorArray)) or nest.is_composite(leaf)
    return leaf if is_whole else convert_to_tensor(leaf)


# ---- ``if`` --------------------------------------------------------------------------------------------------------


def if_stmt(
    test: Any, body: Function, orelse: Function, get_state: Function, set_state: Function, names: Sequence[str],
    nouts: int,
) -> None:  # fmt: skip
    """``if test: body else: orelse``; only the first ``nouts`` symbols are used after it.

    Raises:
      TypeError: a symbol has another structure or type after the one branch than after the other.
      ValueError: only one of the branches gives a symbol a value, or returns one.
    """
    if not is_tensor(test):
        (body if test else orelse)()
        return
    state = Symbols(get_state, set_state, names)
    if isinstance(get_default_graph(), _Sketch):
        _sketch_if(body, orelse, state)
        return
    ends: list[tuple[Any, ...]] = []
    staged: dict[int, Any] = {}

    def branch(run: Function) -> list[Any]:
        state.put({})
        run()
        ends.append(state.get()[:nouts])
        if len(ends) == 1:
            found = {index: _staged(value) for index, value in enumerate(ends[0])}
            staged.update({index: value for index, value in found.items() if value is not _NOT_STAGED})
            return [*staged.values()] or [constant(0)]
        first = [staged.get(index, value) for index, value in enumerate(ends[0])]
        both = [state.like(index, one, value, _BRANCHES) for index, (one, value) in enumerate(zip(first, ends[1]))]
        return [both[index] for index in staged] or [constant(0)]

    found = cond(convert_to_tensor(test), lambda: branch(body), lambda: branch(orelse), strict=True)
    state.put({**dict(enumerate(ends[0])), **dict(zip(staged, found))})


class _Sketch(FunctionGraph):
    """Where the body of a loop is built to see what it returns; there, an ``if`` runs both branches."""


def _sketch_if(body: Function, orelse: Function, state: Symbols) -> None:
    ends = []
    for run in (orelse, body):
        state.put({})
        run()
        ends.append({i: value for i, value in enumerate(state.get()) if not _is_a(value, "UndefinedReturnValue")})
    state.put(ends[0] | ends[1])


def if_exp(test: Any, if_true: Function, if_false: Function, expression: str) -> Any:
    """``if_true if test else if_false``."""
    if is_tensor(test):
        return cond(convert_to_tensor(test), if_true, if_false)
    return if_true() if test else if_false()


# ---- loops ---------------------------------------------------------------------------------------------------------


# How to loop over other things than tensors: class -> function(thing, extra test or None, body, state).
LOOPS_OVER: dict[type, Function] = {}


def while_stmt(
    test: Function, body: Function, get_state: Function, set_state: Function, names: Sequence[str], options: Any
) -> None:
    """``while test: body``."""
    with FunctionGraph(get_default_graph()).as_default():
        goes_on = test()
    if is_tensor(goes_on):
        _loop(test, lambda: (body(), ())[1], [], Symbols(get_state, set_state, names))
    elif goes_on:
        body()
        while test():
            body()


def for_stmt(
    iterated: Any, extra_test: Function | None, body: Function, get_state: Function, set_state: Function,
    names: Sequence[str], options: Any,
) -> None:  # fmt: skip
    """``for element in iterated: body``, while ``extra_test`` holds: no ``break`` or ``return`` was reached."""
    state = Symbols(get_state, set_state, names)
    for kind, loop in LOOPS_OVER.items():
        if isinstance(iterated, kind):
            loop(iterated, extra_test, body, state)
            return
    if not is_tensor(iterated):
        _unrolled(iterated, extra_test, body, state)
        return
    head, is_left, element, following = _walk(convert_to_tensor(iterated))

    def test(at: Tensor) -> Any:
        return is_left(at) if extra_test is None else cond(is_left(at), extra_test, lambda: False)

    def step(at: Tensor) -> list[Any]:
        body(element(at))
        return [following(at)]

    _loop(test, step, [head], state)


def _unrolled(iterated: Any, extra_test: Function | None, body: Function, state: Symbols) -> None:
    """A loop of Python, each round of which is a conditional once a tensor decides whether there was a ``break``."""
    goes_on: Any = True
    for element in iterated:
        run = functools.partial(body, element)
        if_stmt(goes_on, run, lambda: None, state.get, state.set, state.names, len(state.names))
        goes_on = extra_test is None or extra_test()
        if not is_tensor(goes_on) and not goes_on:
            break


def _walk(elements: Tensor) -> tuple[Tensor, Function, Function, Function]:
    """Where a loop over a tensor begins; by a position: whether there is an element, which, and the next position."""
    if elements.op.type == "Range":  # needs no memory
        begin, limit, step = elements.op.inputs
        sign = constant_value(step)
        if sign is None:
            return begin, lambda at: ((step > 0) & (at < limit)) | ((step < 0) & (at > limit)), identity, step.__add__
        return begin, limit.__gt__ if sign > 0 else limit.__lt__, identity, step.__add__
    size = len_(elements)
    array = TensorArray(elements.dtype, size=size, element_shape=elements.shape[1:]).unstack(elements)
    return constant(0), lambda at: at < size, array.read, lambda at: at + 1


def _loop(test: Function, step: Function, head: list[Tensor], state: Symbols) -> None:
    """Repeats ``step(*head)``, which returns the next ``head``, while ``test(*head)``.

    A symbol whose value cannot be a tensor must keep it.

    Raises:
      TypeError: a symbol has another structure or type after a round.
      ValueError: one has another shape, or no value before the loop.
    """
    begin = state.staged()
    begin.update(_returned(step, head, state, begin))
    spare = [] if head or begin else [constant(0)]

    def enter(variables: Sequence[Any]) -> Sequence[Any]:
        state.put(dict(zip(begin, variables[len(head) :])))
        return variables[: len(head)]

    def loop_step(*variables: Any) -> list[Any]:
        following = step(*enter(variables))
        return [*following, *state.after_round(begin), *variables[len(head) + len(begin) :]]

    variables = [*head, *begin.values(), *spare]
    enter(while_loop(lambda *v: test(*enter(v)), loop_step, variables, return_same_structure=True))


def _returned(step: Function, head: list[Tensor], state: Symbols, begin: dict[int, Any]) -> dict[int, Any]:
    """Zeros in the place of what the loop may return: a flag tells whether it has."""
    wanted = [index for index, value in enumerate(state.begin) if _is_a(value, "UndefinedReturnValue")]
    if not wanted:
        return {}
    with _Sketch(get_default_graph()).as_default():
        state.put(begin)
        step(*head)
        ends = state.get()
    found = {index: _staged(ends[index]) for index in wanted}
    return {i: nest.map_structure(_zeros, value) for i, value in found.items() if value is not _NOT_STAGED}


def _zeros(like: Tensor) -> Tensor:
    sizes = [size or 0 for size in like.raw_shape or ()]
    return placeholder_with_default(zeros(sizes, like.dtype.base_dtype), like.shape)


# ---- expressions, ``assert`` and functions of Python ---------------------------------------------------------------


def and_(a: Function, b: Function) -> Any:
    """``a and b``; ``b`` is computed if ``a`` is true."""
    first = a()
    return cond(convert_to_tensor(first), b, lambda: first) if is_tensor(first) else first and b()


def or_(a: Function, b: Function) -> Any:
    """``a or b``; ``b`` is computed if ``a`` is false."""
    first = a()
    return cond(convert_to_tensor(first), lambda: first, b) if is_tensor(first) else first or b()


def not_(a: Any) -> Any:
    """``not a``."""
    return raw_ops.LogicalNot(x=a) if is_tensor(a) else not a


def eq(a: Any, b: Any) -> Any:
    """``a == b``, where the conversion includes comparisons."""
    return raw_ops.Equal(x=a, y=b) if is_tensor(a) or is_tensor(b) else a == b


def not_eq(a: Any, b: Any) -> Any:
    """``a != b``, where the conversion includes comparisons."""
    return not_(eq(a, b))


def assert_stmt(test: Any, message: Function) -> None:
    """``assert test, message``."""
    if is_tensor(test):
        data = message()
        Assert(test, data if isinstance(data, list) else [data])
    else:
        assert test, message()


def list_append(values: Any, value: Any) -> Any:
    """``values.append(value)``, where the conversion includes lists."""
    if isinstance(values, TensorArray):
        return values.write(values.size(), value)
    values.append(value)
    return values


def list_stack(values: Any, opts: Any) -> Any:
    """``stack(values)``, where the conversion includes lists."""
    return values.stack() if isinstance(values, TensorArray) else opts.original_call(values)


def len_(values: Any) -> Any:
    """``len(values)``: a number where the shape tells it."""
    if isinstance(values, TensorArray):
        return values.size()
    if not is_tensor(values):
        return len(values)
    tensor = convert_to_tensor(values)
    if tensor.raw_shape == ():
        raise ValueError(f"len requires a non-scalar tensor, got {tensor}.")
    size = None if tensor.raw_shape is None else tensor.raw_shape[0]
    return shape(tensor)[0] if size is None else size


def print_(*values: Any, **options: Any) -> None:
    """``print``: a step prints, where a tensor is among the values."""
    tensors = [value for value in values if is_tensor(value)]
    if not tensors:
        print(*values, **options)
        return

    def show(*arrays: Any) -> None:
        given = iter(arrays)
        shown = [next(given) if is_tensor(value) else value for value in values]
        print(*(one.decode() if isinstance(one, bytes) else one for one in shown), **{"flush": True, **options})

    py_func(show, tensors, [])


def range_(*bounds: Any) -> Any:
    """``range``: as in Python, an end before the begin leaves nothing."""
    if not any(map(is_tensor, bounds)):
        return range(*bounds)
    if len(bounds) == 3:
        return tensor_range(*bounds)
    begin, limit = (0, *bounds)[-2:]
    return tensor_range(begin, maximum(begin, limit))


def int_(value: Any = 0, *base: Any) -> Any:
    """``int``: of a tensor, int32."""
    return _number(value, dtypes.int32) if is_tensor(value) else int(value, *base)


def float_(value: Any = 0.0) -> Any:
    """``float``: of a tensor, float32."""
    return _number(value, dtypes.float32) if is_tensor(value) else float(value)


def _number(value: TensorLike, dtype: dtypes.DType) -> Tensor:
    tensor = convert_to_tensor(value)
    is_text = tensor.dtype.base_dtype is dtypes.string
    return raw_ops.StringToNumber(string_tensor=tensor, out_type=dtype) if is_text else cast(tensor, dtype)


_BUILTINS: dict[Any, Function] = {len: len_, print: print_, range: range_, int: int_, float: float_}
_STATEMENTS = (if_stmt, if_exp, while_stmt, for_stmt, and_, or_, not_, eq, not_eq, assert_stmt, list_append, list_stack)
