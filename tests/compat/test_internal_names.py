"""The helpers for functions that libraries import from TensorFlow's private ``util``."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tfmini.compat import internal_names as names


def test_arguments_and_names_of_functions() -> None:
    class Model:
        def __call__(self, features: Any, labels: Any) -> None: ...
        def method(self, features: Any, **options: Any) -> None: ...

    def function(a: Any, b: Any, c: Any = 1) -> None: ...

    assert names.fn_args(function) == ("a", "b", "c") and names.fn_args(functools.partial(function, 1, c=2)) == ("b",)
    assert names.fn_args(Model()) == ("features", "labels") and names.fn_args(Model().method) == ("features",)
    assert names.has_kwargs(Model().method) and not names.has_kwargs(function)
    assert names.get_func_name(functools.partial(function)) == "function"
    with pytest.raises(ValueError, match="keyword args"):
        names.keyword_args_only(function)(1)


def test_a_lazy_module_is_imported_when_it_is_used() -> None:
    space: dict[str, Any] = {}
    loader = names.LazyLoader("text", space, "textwrap")
    assert loader.dedent(" a") == "a" and space["text"].__name__ == "textwrap"
