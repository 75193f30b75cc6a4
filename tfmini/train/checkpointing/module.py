"""`tf.Module`: an object that has variables and other modules as attributes, and finds them all."""

from __future__ import annotations

import functools
import keyword
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any, ClassVar, TypeVar

from tfmini import nest
from tfmini.export import export
from tfmini.graph.default_graph import get_default_graph
from tfmini.ops.variables.base import Variable
from tfmini.train.checkpointing.object_graph import Trackable, is_trackable

_Method = TypeVar("_Method", bound=Callable[..., Any])
_Path = tuple[Any, ...]


@export("tf.contrib.checkpoint.NoDependency")
class NoDependency:
    """An attribute's value that checkpoints leave out."""

    def __init__(self, value: Any) -> None:
        self.value = value


@export("tf.Module")
class Module(Trackable):
    """Base class of objects that hold variables, other modules, and lists, tuples and dictionaries of them.

    Attributes:
      name: the argument, or the class's name in small letters (``MyDense`` is ``my_dense``).
      name_scope: a context manager that enters the module's name scope, which was made when the module was.
      variables: the variables of the module and of the modules below it, those of an object by attribute name and
        before those of its submodules; each once. With ``trainable_variables`` those that are trainable.
      submodules: all modules below this one, each once.
    """

    _TF_MODULE_IGNORED_PROPERTIES: ClassVar[frozenset[str]] = frozenset({"_scope_name", "_left_out"})

    def __init__(self, name: str | None = None) -> None:
        """Names the module and makes its name scope.

        Raises:
          ValueError: when ``name`` is no Python identifier.
        """
        name = _snake(type(self).__name__) if name is None else name
        if not name.isidentifier() or keyword.iskeyword(name):
            raise ValueError(
                f"{name!r} is not a valid module name. Module names must be valid Python identifiers, like a class's."
            )
        self._name = name
        with get_default_graph().name_scope(name) as scope_name:
            self._scope_name = scope_name

    def __setattr__(self, name: str, value: Any) -> None:
        with suppress(AttributeError):
            if getattr(self, name) is value:  # also of a property without a setter, as in TensorFlow
                return
        if isinstance(value, NoDependency):
            vars(self).setdefault("_left_out", set()).add(name)
            value = value.value
        elif is_trackable(before := vars(self).get(name)) and not is_trackable(value, inside=True):
            self._track_trackable(before, name, overwrite=True)  # as in TensorFlow: checkpoints go on saving it
        super().__setattr__(name, value)

    def _no_dependency(self, value: Any) -> Any:
        """Marks the value of an attribute, in its assignment, as one that checkpoints leave out."""
        return NoDependency(value)

    @property
    def name(self) -> str:
        return self._name

    @property
    def name_scope(self) -> AbstractContextManager[str]:
        return get_default_graph().name_scope(self._scope_name)

    @property
    def variables(self) -> tuple[Variable, ...]:
        return tuple(self._flatten(predicate=_is_variable))

    @property
    def trainable_variables(self) -> tuple[Variable, ...]:
        return tuple(self._flatten(predicate=lambda leaf: _is_variable(leaf) and getattr(leaf, "trainable", False)))

    @property
    def submodules(self) -> tuple[Module, ...]:
        return tuple(self._flatten(predicate=_is_module))

    @classmethod
    def with_name_scope(cls, method: _Method) -> _Method:
        """Wraps a method so that the ops that it makes are in the module's name scope."""

        @functools.wraps(method)
        def scoped(self: Module, *args: Any, **kwargs: Any) -> Any:
            with self.name_scope:
                return method(self, *args, **kwargs)

        return scoped  # type: ignore[return-value]

    def _flatten(
        self,
        recursive: bool = True,
        predicate: Callable[[Any], Any] | None = None,
        attribute_traversal_key: Callable[[tuple[str, Any]], Any] | None = None,
        with_path: bool = False,
    ) -> Iterator[Any]:
        """Yields the leaves of the attributes for which ``predicate`` is true, each once.

        Args:
          recursive: also the leaves of submodules, behind the module's own.
          predicate: called with a leaf; None takes all.
          attribute_traversal_key: the sort key of pairs (attribute, value), in place of the attribute's name.
          with_path: yields pairs (path of attributes, indices and keys; leaf).
        """
        wanted = predicate or (lambda leaf: True)
        for path, leaf in _leaves(self, recursive, wanted, attribute_traversal_key, (), {id(self)}):
            yield (path, leaf) if with_path else leaf


def _leaves(
    module: Module,
    recursive: bool,
    wanted: Callable[[Any], Any],
    order: Callable[[tuple[str, Any]], Any] | None,
    prefix: _Path,
    seen: set[int],
) -> Iterator[tuple[_Path, Any]]:
    below = []
    ignored = module._TF_MODULE_IGNORED_PROPERTIES
    for attribute, value in sorted(vars(module).items(), key=order or (lambda pair: pair[0])):
        for path, leaf in _parts(value, (*prefix, attribute)) if attribute not in ignored else ():
            if id(leaf) in seen and (_is_variable(leaf) or _is_module(leaf)):
                continue
            seen.add(id(leaf))
            if wanted(leaf):
                yield path, leaf
            if recursive and _is_module(leaf):
                below.append((path, leaf))
    for path, leaf in below:
        yield from _leaves(leaf, recursive, wanted, order, path, seen)


def _parts(value: Any, path: _Path) -> Iterator[tuple[_Path, Any]]:
    """The leaves of a structure with their paths; dictionaries in the order of their keys."""
    if isinstance(value, dict):
        try:
            items: list[tuple[Any, Any]] = sorted(value.items(), key=lambda pair: pair[0])
        except TypeError:
            items = list(value.items())
    elif nest.is_nested(value):
        fields = getattr(value, "_fields", None)
        items = list(zip(fields or range(len(value)), value, strict=True))
    else:
        yield path, value
        return
    for key, item in items:
        yield from _parts(item, (*path, key))


def _is_variable(leaf: object) -> bool:
    return isinstance(leaf, Variable)


def _is_module(leaf: object) -> bool:
    """Whether it is a module, or a layer of Keras, which is one in TensorFlow and has this attribute here as well."""
    return hasattr(type(leaf), "_TF_MODULE_IGNORED_PROPERTIES")


def _snake(name: str) -> str:
    """``MyDense2D`` is ``my_dense2_d``."""
    return re.sub(r"((?<=[a-z0-9])[A-Z]|(?!^)[A-Z](?=[a-z]))", r"_\1", name).lower()
