"""Deprecated functions, arguments and values warn once, and do what they did."""

from __future__ import annotations

import collections
import inspect
import sys

import pytest

import tfmini as tf
from tfmini.compat import deprecation


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The warnings so far."""
    texts: list[str] = []
    monkeypatch.setattr(tf.get_logger(), "warning", lambda text, *args: texts.append(text % args))
    return texts


def test_a_deprecated_function_warns_once_with_place_date_and_remedy(told: list[str]) -> None:
    @tf.contrib.framework.deprecated("2030-01-31", "Use new.")
    def old(x: int, y: int = 2) -> int:
        """Add."""
        return x + y

    assert [old(1), old(1, y=3)] == [3, 4]
    assert len(told) == 1 and "old (from tests.compat.test_deprecation) is deprecated" in told[0]
    assert "after 2030-01-31" in told[0] and told[0].endswith("Use new.") and __file__ in told[0]
    assert inspect.getfullargspec(old).args == ["x", "y"] and "Add. (deprecated)" in (old.__doc__ or "")


def test_warn_once_false_warns_at_each_call(told: list[str]) -> None:
    old = tf.contrib.slim.deprecated(None, "Use new.", warn_once=False)(abs)
    assert [old(-1), old(-2)] == [1, 2] and len(told) == 2 and "in a future version" in told[0]


def test_a_deprecated_class_warns_at_construction_and_stays_a_class(told: list[str]) -> None:
    class Old:
        def __init__(self, x: int) -> None:
            self.x = x

    made = deprecation.deprecated(None, "Use New.")(Old)
    assert made is Old and Old(3).x == 3 and len(told) == 1


def test_a_deprecated_named_tuple_is_made_as_before(told: list[str]) -> None:
    point = deprecation.deprecated("2020-01-01", "Use another.")(collections.namedtuple("Point", "x y"))
    assert point(1, y=2) == (1, 2) and len(told) == 1


def test_deprecated_arguments_warn_when_given_another_value_than_the_fine_one(told: list[str]) -> None:
    @tf.contrib.framework.deprecated_args(None, "Leave it.", "b", ("c", None))
    def f(a: int, b: int = 1, c: object = None) -> int:
        return a

    assert [f(1), f(1, c=None)] == [1, 1] and not told
    assert [f(1, 2), f(1, 2), f(1, c=3)] == [1, 1, 1]
    assert [text.partition(" is deprecated")[0][-1] for text in told] == ["b", "c"]


def test_deprecated_values_warn_and_others_do_not(told: list[str]) -> None:
    @tf.contrib.framework.deprecated_arg_values(None, "Take another.", b=3)
    def f(a: int, b: object = 1) -> int:
        return a

    assert [f(1), f(1, 2), f(1, tf.constant(3)), f(1, b=3.0)] == [1, 1, 1, 1] and not told
    assert f(1, 3) == 1 and len(told) == 1 and "with b=3 " in told[0]


def test_an_alias_calls_the_function_or_makes_the_class(told: list[str]) -> None:
    alias = deprecation.deprecated_alias("old.abs", "new.abs", abs)
    assert alias(-2) == 2 and "The name old.abs is deprecated" in told[0]
    kind = deprecation.deprecated_alias("old.List", "new.List", list)
    assert kind([1]) == [1] and issubclass(kind, list) and len(told) == 2


def test_silence_and_the_private_variable_suppress_warnings(told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    old = deprecation.deprecated(None, "Use new.")(abs)
    with deprecation.silence():
        assert old(-1) == 1
    quiet = type(sys)("deprecation")
    quiet.__dict__["_PRINT_DEPRECATION_WARNINGS"] = False
    monkeypatch.setitem(sys.modules, "tensorflow.python.util.deprecation", quiet)
    assert old(-1) == 1 and not told


def test_wrong_dates_and_missing_instructions_or_arguments_are_errors() -> None:
    with pytest.raises(ValueError, match="YYYY-MM-DD"):
        deprecation.deprecated("soon", "Use new.")
    with pytest.raises(ValueError, match="nstructions"):
        deprecation.deprecated(None, "")
    with pytest.raises(ValueError, match="no arguments"):
        deprecation.deprecated_args(None, "Leave it.", "b")(lambda a: a)


def test_the_namespaces_of_both_versions_tell_the_version() -> None:
    for name in (
        "__version__",
        "__git_version__",
        "__compiler_version__",
        "__cxx11_abi_flag__",
        "__monolithic_build__",
    ):
        assert getattr(tf.compat.v1, name) == getattr(tf.compat.v2, name) == getattr(tf, name)
