"""``tf.contrib.training.HParams``: typed hyperparameters that a string or JSON can override."""

from __future__ import annotations

import json
import numbers
import re
from collections.abc import Callable, Mapping
from typing import Any

from tfmini import errors, protos
from tfmini.export import export
from tfmini.graph.attr_values import as_bytes
from tfmini.graph.meta_graph import register_proto_function

_CLAUSE = re.compile(
    r"\s*(?P<name>[a-zA-Z][\w.]*)(?:\[\s*(?P<index>\d+)\s*\])?\s*=\s*"
    r"(?:\[(?P<many>[^\]]*)\]|(?P<one>[^,\[]*))(?:$|,)"
)


def _boolean(text: str) -> bool:
    if text.lower() in ("true", "false") and text[1:].islower():
        return text.lower() == "true"
    return bool(int(text))


def _reader(name: str, kind: type, values: str) -> Callable[[str], Any]:
    """Returns a function that converts text to a value; its ValueError names the parameter."""
    convert = _boolean if kind is bool else kind

    def read(text: str) -> Any:
        try:
            return convert(text)
        except ValueError:
            raise ValueError(
                f"Could not parse hparam '{name}' of type '{kind.__name__}' with value '{text}' in {values}"
            ) from None

    return read


@export("tf.contrib.training.parse_values")
def parse_values(values: str, type_map: Mapping[str, Any], ignore_unknown: bool = False) -> dict[str, Any]:
    """Parses ``"a=1,b=[x,y],c[1]=2"`` to a dictionary (``tf.contrib.training.parse_values``).

    Args:
      values: ``name=value`` pairs. A value is a scalar, a list in brackets, or one element of a list.
      type_map: name -> type of the scalars.
      ignore_unknown: skip names without a type.

    Returns:
      Name -> scalar, list, or {index: scalar}.

    Raises:
      ValueError: the text is malformed, a name is unknown, or a name appears twice.
    """
    result: dict[str, Any] = {}
    position = 0
    while position < len(values):
        clause = _CLAUSE.match(values, position)
        if clause is None:
            raise ValueError(f"Malformed hyperparameter value: {values[position:]}")
        position = clause.end()
        if clause["name"] in type_map:
            _add_clause(clause, type_map[clause["name"]], values, result)
        elif not ignore_unknown:
            raise ValueError(f"Unknown hyperparameter type for {clause['name']}")
    return result


def _add_clause(clause: re.Match[str], kind: type, values: str, result: dict[str, Any]) -> None:
    """Adds one clause to the result."""
    name, index = clause["name"], clause["index"]
    read = _reader(name, kind, values)
    if clause["many"] is not None:
        if index is not None:
            raise ValueError("Assignment of a list to a list index.")
        value: Any = [read(part) for part in re.split("[ ,]", clause["many"]) if part]
    else:
        value = read(clause["one"].strip() if kind is not str else clause["one"])
    if index is None:
        if name in result:
            raise ValueError(f"Multiple assignments to variable '{name}' in {values}")
        result[name] = value
        return
    elements = result.setdefault(name, {})
    if not isinstance(elements, dict):
        raise ValueError(f"Multiple assignments to variable '{name}' in {values}")
    if int(index) in elements:
        raise ValueError(f"Multiple assignments to variable '{name}[{index}]' in {values}")
    elements[int(index)] = value


def _fitted(name: str, kind: type, value: object) -> Any:
    """Converts a value to the parameter's type; raises ValueError if that would lose information."""
    if type(value) is kind or kind is type(None):
        return value
    fits = isinstance(value, bool) == issubclass(kind, bool)
    for family in ((str, bytes), numbers.Integral, numbers.Number):
        fits = fits and (isinstance(value, family) or not issubclass(kind, family))
    if not fits:
        raise ValueError(f"Could not cast hparam '{name}' of type '{kind}' from value {value!r}")
    try:
        return kind(value)
    except OverflowError:
        raise ValueError(f"Could not cast hparam '{name}' of type '{kind}' from value {value!r}") from None


def _family(kind: type) -> str:
    """The kind of a message's fields for values of a type."""
    families: dict[Any, str] = {bool: "bool", numbers.Integral: "int64", (str, bytes): "bytes", numbers.Real: "float"}
    for types, family in families.items():
        if issubclass(kind, types):
            return family
    raise ValueError(f"Unsupported parameter type: {kind}")


def _value_of(message: Any) -> Any:
    """The value or the list of one field of HParamDef; bytes are text."""
    field = message.WhichOneof("kind")
    value = getattr(message, field)
    values = [v.decode() if isinstance(v, bytes) else v for v in (value.value if field.endswith("_list") else [value])]
    return values if field.endswith("_list") else values[0]


class UnknownHparam(KeyError, ValueError):
    """A name that no hyperparameter has: a KeyError in TensorFlow, and a text that cannot be used."""

    __str__ = ValueError.__str__  # a KeyError would put the message in quotes


@export("tf.contrib.training.HParams")
class HParams:
    """Typed hyperparameters (``tf.contrib.training.HParams``); each is an attribute.

    Args:
      hparam_def: a message that `to_proto` made, in place of ``kwargs``.
      model_structure: returned by `get_model_structure`.
      kwargs: name -> value. A list is a multi-valued parameter with the type of its first element.

    Raises:
      ValueError: the class uses the name itself, a list is empty, or both a message and values are given.
      AssertionError: ``hparam_def`` is another object than such a message.
    """

    def __init__(self, hparam_def: Any = None, model_structure: object = None, **kwargs: Any) -> None:
        self._hparam_types: dict[str, tuple[Any, bool]] = {}
        self._model_structure = model_structure
        if hparam_def:
            if kwargs:
                raise ValueError("hparam_def and initialization values are mutually exclusive")
            if not isinstance(hparam_def, protos.HParamDef):
                raise AssertionError(f"hparam_def must be an HParamDef, not {type(hparam_def)}")
            kwargs = {name: _value_of(message) for name, message in hparam_def.hparam.items()}
        for name, value in kwargs.items():
            self.add_hparam(name, value)

    def to_proto(self, export_scope: str | None = None) -> Any:
        """The values as a message HParamDef; floats have 32 bits there.

        Raises:
          ValueError: a value is no number, boolean or text.
        """
        message = protos.HParamDef()
        for name, (kind, many) in self._hparam_types.items():
            family = _family(kind)
            values = [as_bytes(v) if family == "bytes" else v for v in self._listed(name, many)]
            if many:
                getattr(message.hparam[name], f"{family}_list").value.extend(values)
            else:
                setattr(message.hparam[name], f"{family}_value", values[0])
        return message

    def _listed(self, name: str, many: bool) -> list[Any]:
        return list(getattr(self, name)) if many else [getattr(self, name)]

    @staticmethod
    def from_proto(hparam_def: Any, import_scope: str | None = None) -> HParams:
        """The hyperparameters of a message that `to_proto` made."""
        return HParams(hparam_def=hparam_def)

    def add_hparam(self, name: str, value: Any) -> None:
        """Adds a parameter; its type is that of the value."""
        if getattr(self, name, None) is not None:
            raise ValueError(f"Hyperparameter name is reserved: {name}")
        many = isinstance(value, (list, tuple))
        if many and not value:
            raise ValueError(f"Multi-valued hyperparameters cannot be empty: {name}")
        self._hparam_types[name] = (type(value[0] if many else value), many)
        setattr(self, name, value)

    def set_hparam(self, name: str, value: Any) -> None:
        """Sets an existing parameter; raises ValueError for another type and KeyError for an unknown name."""
        if name not in self._hparam_types:
            raise UnknownHparam(f"There is no hyperparameter {name!r}; there are {', '.join(self._hparam_types)}")
        kind, many = self._hparam_types[name]
        if isinstance(value, list) != many:
            raise ValueError(
                f"Must pass a list for multi-valued parameter: {name}."
                if many
                else f"Must not pass a list for single-valued parameter: {name}"
            )
        setattr(self, name, [_fitted(name, kind, v) for v in value] if many else _fitted(name, kind, value))

    def del_hparam(self, name: str) -> None:
        """Removes a parameter if it exists."""
        if name in self._hparam_types:
            delattr(self, name)
            del self._hparam_types[name]

    def parse(self, values: str) -> HParams:
        """Overrides parameters from a string (see `parse_values`), and returns self."""
        types = {name: kind for name, (kind, _) in self._hparam_types.items()}
        with errors.reading("The hyperparameters cannot be used", ValueError):
            parsed = parse_values(values, types)
        return self.override_from_dict({name: self._whole(name, value) for name, value in parsed.items()})

    def _whole(self, name: str, value: object) -> Any:
        """If ``value`` is {index: element}, returns the current list with these elements replaced."""
        if not isinstance(value, dict):
            return value
        if not self._hparam_types[name][1]:
            raise ValueError(f"Must not pass a list for single-valued parameter: {name}")
        whole = list(getattr(self, name))
        for index, element in value.items():
            if index >= len(whole):
                raise ValueError(f"{name}[{index}] is beyond the end of the parameter, which has {len(whole)} values")
            whole[index] = element
        return whole

    def override_from_dict(self, values_dict: Mapping[str, Any]) -> HParams:
        """Sets parameters, and returns self."""
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    def set_from_map(self, values_map: dict[str, Any]) -> HParams:
        """The older name of `override_from_dict`."""
        return self.override_from_dict(values_map)

    def parse_json(self, values_json: str) -> HParams:
        """Overrides parameters from a JSON object, and returns self.

        Raises:
          ValueError: the text is no JSON object, or a value cannot be used.
          KeyError: there is no such parameter.
        """
        with errors.reading("The hyperparameters are no JSON object", ValueError):
            values = json.loads(values_json)
        if not isinstance(values, dict):
            raise ValueError(f"The hyperparameters must be a JSON object, not {values!r}")
        return self.override_from_dict(values)

    def to_json(
        self, indent: int | None = None, separators: tuple[str, str] | None = None, sort_keys: bool = False
    ) -> str:
        """The values as JSON, without functions."""
        kept = {name: value for name, value in self.values().items() if not callable(value)}
        return json.dumps(kept, indent=indent, separators=separators, sort_keys=sort_keys)

    def values(self) -> dict[str, Any]:
        """Name -> value."""
        return {name: getattr(self, name) for name in self._hparam_types}

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a parameter, or ``default`` if there is none; ``default`` must have the parameter's type."""
        if key not in self._hparam_types:
            return default
        if default is not None:
            kind, many = self._hparam_types[key]
            if many != isinstance(default, list):
                raise ValueError(f"The default of hparam '{key}' is {'not ' if many else ''}a list: {default!r}")
            for value in default if many else [default]:
                _fitted(key, kind, value)
        return getattr(self, key)

    def get_model_structure(self) -> Any:
        """The ``model_structure`` that was given."""
        return self._model_structure

    def set_model_structure(self, model_structure: object) -> None:
        """Replaces the model structure."""
        self._model_structure = model_structure

    def __contains__(self, key: str) -> bool:
        return key in self._hparam_types

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self.values().items())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({sorted(self.values().items())})"


register_proto_function("hparams", "HParamDef", HParams.to_proto, HParams.from_proto)
