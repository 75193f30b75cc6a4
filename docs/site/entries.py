"""The public names with what a reader wants to know of each: the data of the API reference.

It reads the table of names, the objects behind them and their docstrings. It needs no Sphinx; `pages` turns the entries
into pages for it.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from google.protobuf.message import Message

import tfmini
from tfmini import namespace
from tfmini.dtypes import DType
from tfmini.graph.op_def import ArgDef, AttrDef
from tfmini.graph.op_types import OPS, load_ops

CONFORMANCE = Path(__file__).parents[1] / "reference" / "conformance.md"
FROM_TENSORFLOW = "Deliberate differences"


@dataclass(frozen=True)
class Entry:
    """What the reference says of one public name.

    Attributes:
      name: as users write it, such as ``tf.nn.relu``.
      kind: the directive of Sphinx's Python domain: function, class, exception, data, module, method, property.
      signature: with its parentheses; "" where there is none.
      text: the docstring, without indentation.
      same_as: the name under which an equal object is described, if that is another one.
      differs: (what it does here, why) for each deliberate difference from TensorFlow.
      members: the methods and properties of a class.
      inherited: (name of a public base class, names of the members that it describes).
    """

    name: str
    kind: str
    signature: str = ""
    text: str = ""
    same_as: str = ""
    differs: tuple[tuple[str, str], ...] = ()
    members: tuple[Entry, ...] = ()
    inherited: tuple[tuple[str, tuple[str, ...]], ...] = ()


_USUAL = ("tf.train", "tf.nn", "tf.contrib.layers")  # the namespaces that scripts use for what several have


@dataclass(frozen=True)
class Place:
    """Where a public name is defined, relative to ``tfmini``; an op of ``tf.raw_ops`` has no module."""

    home: str
    attribute: str
    names: list[str] = field(default_factory=list, compare=False)

    @property
    def main_name(self) -> str:
        """The name under which it is described: a short one, rather the definition's own than an old one."""

        def cost(name: str) -> tuple[object, ...]:
            space, _, last = name.rpartition(".")
            return name.count("."), last != self.attribute, space not in _USUAL, name

        return min(self.names, key=cost)


@functools.cache
def places() -> dict[str, Place]:
    """Public name -> where it is defined, for all of `tfmini.namespace.public_names`."""
    load_ops()
    found: dict[tuple[str, int, str], Place] = {}
    for space, public, home, attribute in namespace.rows():
        value = getattr(import_module(home), attribute)
        if inspect.isfunction(value) or inspect.isclass(value):  # others may be equal by chance
            home, attribute = value.__module__ or home, value.__name__
        place = found.setdefault((home, id(value), attribute), Place(home.removeprefix("tfmini."), attribute))
        place.names.append(f"tf.{space}.{public}" if space else f"tf.{public}")
    by_name = {name: place for place in found.values() for name in place.names}
    for name in namespace.public_names():
        if name not in by_name:
            by_name[name] = Place("", name, [name])
    return by_name


def entry(name: str) -> Entry:
    """The entry of a public name. The objects are those of the running library."""
    place = places()[name]
    value = _value(name)
    if place.main_name != name:
        return Entry(name, _kind(value), _signature(value), same_as=place.main_name, differs=differences(name))
    if place.home == "":
        return Entry(name, "function", _signature(value), _text_of_op(name.rpartition(".")[2]), "", differences(name))
    if inspect.isclass(value):
        return _class(name, value)
    return Entry(name, _kind(value), _signature(value), _text(value), differs=differences(name))


def _value(name: str) -> Any:
    return functools.reduce(getattr, name.split(".")[1:], tfmini)


def _kind(value: Any) -> str:
    if inspect.isclass(value):
        return "exception" if issubclass(value, BaseException) else "class"
    if isinstance(value, ModuleType):
        return "module"
    return "function" if callable(value) and not isinstance(value, DType) else "data"


def _text(value: Any) -> str:
    """The docstring; a value that is neither function nor class has that of its type, so it is shown instead."""
    if isinstance(value, functools.partial):
        given = [*value.args, *(f"{name}={_default(argument)}" for name, argument in value.keywords.items())]
        return f"`{value.func.__name__}` of ``{', '.join(given)}``.\n\n{inspect.getdoc(value.func) or ''}"
    text = inspect.getdoc(value) or ""
    if isinstance(value, ModuleType):  # such as those of TF-Slim, whose longer texts have a form of their own
        return text.partition("\n\n")[0]
    if _kind(value) != "data":
        return text
    shown = repr(value)
    return f"A `{type(value).__name__}`." if len(shown) > 60 or " at 0x" in shown else f"The value ``{shown}``."


# ---- signatures -----------------------------------------------------------------------------


class _Written:
    """A default value as a script would write it, for the text of a signature."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _signature(value: Any) -> str:
    """The arguments with their types and defaults; "" for what is not called."""
    if _kind(value) in ("data", "module") or (inspect.isclass(value) and issubclass(value, Message | Enum)):
        return ""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    returned = signature.empty if inspect.isclass(value) else signature.return_annotation
    if isinstance(returned, str):
        returned = _Written(returned)
    parameters = [_parameter(p) for p in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=returned))


def _parameter(parameter: inspect.Parameter) -> inspect.Parameter:
    """The parameter with annotation and default as they are written."""
    annotation = parameter.annotation
    if isinstance(annotation, str):
        annotation = _Written(annotation)
    if parameter.default is inspect.Parameter.empty:
        return parameter.replace(annotation=annotation)
    return parameter.replace(annotation=annotation, default=_Written(_default(parameter.default)))


def _default(value: Any) -> str:
    if isinstance(value, DType):
        return f"tf.{value.name}"
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if inspect.isfunction(value) or inspect.isclass(value):
        return value.__name__
    shown = repr(value)
    return f"{type(value).__name__}()" if shown.startswith("<") else shown


# ---- classes --------------------------------------------------------------------------------

_OPERATORS = {"__call__", "__getitem__", "__enter__", "__exit__", "__iter__", "__len__"}


def _class(name: str, value: type) -> Entry:
    """A class with the members that no other public class describes."""
    if issubclass(value, Message):
        return Entry(name, "class", "", _text_of_message(value), differs=differences(name))
    members, inherited = [], []
    for base in value.__mro__:
        described = _public_name_of(base)
        names = [n for n in vars(base) if _is_shown(n, base, value)]
        if described and base is not value:
            inherited.append((described, tuple(sorted(names))))
        elif base.__module__.startswith("tfmini"):
            members += [_member(f"{name}.{n}", inspect.getattr_static(value, n)) for n in sorted(names)]
    text, init = inspect.getdoc(value) or "", vars(value).get("__init__")
    if init is not None and init.__doc__ and "Args:" not in text:
        text = f"{text}\n\n{inspect.getdoc(init)}"
    shown = tuple({member.name: member for member in members}.values())
    kept = tuple((base, names) for base, names in inherited if names)
    return Entry(name, _kind(value), _signature(value), text, "", differences(name), shown, kept)


def _is_shown(member: str, base: type, value: type) -> bool:
    """Whether `base` defines a member for users, which `value` has from there."""
    if member.startswith("_") and member not in _OPERATORS:
        return False
    owner = next(cls for cls in value.__mro__ if member in vars(cls))
    thing = vars(base)[member]
    described = isinstance(thing, property | staticmethod | classmethod | functools.cached_property | str | int | DType)
    return owner is base and (described or callable(thing)) and not inspect.isclass(thing)


def _member(name: str, value: Any) -> Entry:
    if isinstance(value, property | functools.cached_property):
        return Entry(name, "property", "", inspect.getdoc(value) or "", differs=differences(name))
    if isinstance(value, str | int | DType):
        return Entry(name, "attribute", "", f"The value ``{_default(value)}``.")
    kind = {staticmethod: "staticmethod", classmethod: "classmethod"}.get(type(value), "method")
    function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
    signature = _signature(function)
    if kind != "staticmethod":
        signature = re.sub(r"^\((self|cls|_self)(, |(?=\)))", "(", signature)
    return Entry(name, kind, signature, inspect.getdoc(function) or "", differs=differences(name))


def _public_name_of(value: type) -> str:
    """The name under which a class is described; "" if it is not public."""
    return next((p.main_name for p in places().values() if p.attribute == value.__name__ and _is(p, value)), "")


def _is(place: Place, value: type) -> bool:
    return f"tfmini.{place.home}" == value.__module__


def _text_of_message(message: type[Message]) -> str:
    """The fields of a protocol buffer with their types."""
    lines = [f"A protocol buffer, `{message.DESCRIPTOR.full_name}`.", "", "Args:"]
    for item in message.DESCRIPTOR.fields:
        kind = item.message_type or item.enum_type
        shown = kind.name if kind else _SCALARS.get(item.cpp_type, "number")
        lines.append(f"  {item.name}: {'repeated ' if item.is_repeated else ''}{shown}")
    return "\n".join(lines if message.DESCRIPTOR.fields else lines[:1])


_SCALARS = {7: "bool", 9: "string or bytes", 1: "int", 2: "int", 3: "int", 4: "int", 5: "float", 6: "float"}


# ---- ops ------------------------------------------------------------------------------------


def _text_of_op(op_name: str) -> str:
    """The inputs, attrs and outputs of an op with their dtypes."""
    handle = OPS[op_name]
    op_def, renamed = handle.op_def, handle.traits.get("raw_names", {})
    inferred = op_def.inferred_attrs()
    lines = [f"Adds the op `{op_name}` to the default graph.", ""]
    arguments = [f"  {renamed.get(a.name, a.name)}: {_dtype_of(a, op_def.attrs)}" for a in op_def.inputs]
    for attr in op_def.attrs.values():
        if attr.name not in inferred:
            allowed = f", one of {_names(attr.allowed)}" if attr.allowed else ""
            arguments.append(f"  {renamed.get(attr.name, attr.name)}: attr of type {attr.kind}{allowed}")
    lines += ["Args:", *arguments, ""] if arguments else []
    outputs = "; ".join(f"{a.name}: {_dtype_of(a, op_def.attrs)}" for a in op_def.outputs)
    return "\n".join([*lines, "Returns:", f"  {outputs or 'the operation'}."])


def _dtype_of(arg: ArgDef, attrs: Mapping[str, AttrDef]) -> str:
    """The dtypes that an input or output may have, in words."""
    if arg.dtype is not None:
        text = arg.dtype.name
    elif arg.type_list_attr is not None:
        return f"tensors of the dtypes {arg.type_list_attr}"
    else:
        assert arg.type_attr is not None
        allowed = attrs[arg.type_attr].allowed
        text = f"{arg.type_attr}, one of {_names(allowed)}" if allowed else f"{arg.type_attr}, any dtype"
    return f"{arg.number_attr} tensors of {text}" if arg.number_attr else text + (" (a variable)" if arg.is_ref else "")


def _names(values: Iterable[Any]) -> str:
    return ", ".join(getattr(value, "name", None) or repr(value) for value in values)


# ---- what differs from TensorFlow -----------------------------------------------------------


@functools.cache
def rows_of_differences() -> tuple[tuple[tuple[str, ...], str, str], ...]:
    """(names, what differs, why) per row of the table in the page on conformance."""
    text = CONFORMANCE.read_text().partition(f"\n## {FROM_TENSORFLOW}\n")[2].partition("\n## ")[0]
    cells = [row.strip("| ").split(" | ") for row in re.findall(r"^\|.*\|$", text, re.MULTILINE)[2:]]
    return tuple((tuple(re.findall(r"`([\w.*]+)`", names)), here, why) for names, here, why in cells)


def differences(name: str) -> tuple[tuple[str, str], ...]:
    """What a public name, or a member of a public class, does otherwise than TensorFlow's."""
    return tuple((here, why) for names, here, why in rows_of_differences() if any(_matches(n, name) for n in names))


def _matches(written: str, name: str) -> bool:
    return fnmatch(
        name, written if written.startswith("tf.") else f"tf.*{written}" if "." in written else f"tf.{written}"
    )
