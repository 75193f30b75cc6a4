"""Traits: what declarations say about ops, and how others ask for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tfmini
from tests.op_modules import op_modules
from tfmini.graph.op_types import (
    ENTER_OPS,
    EXIT_OPS,
    FLOW_OPS,
    MERGE_OPS,
    NEXT_OPS,
    OPS,
    SWITCH_OPS,
    ops_with,
    trait_of,
)
from tfmini.graph.registry import op


def test_ops_declared_later_join_the_sets_of_their_traits() -> None:
    placeholders, variables = ops_with("placeholder"), ops_with("variable", "reference")
    op("TraitTestPlaceholder() -> x: float", placeholder=True, slow_io=False)
    assert "TraitTestPlaceholder" in placeholders and "TraitTestPlaceholder" not in variables
    assert trait_of("TraitTestPlaceholder", "placeholder") is True
    assert trait_of("TraitTestPlaceholder", "slow_io") is None
    assert "TraitTestPlaceholder" not in ops_with("slow_io")


def test_an_op_that_is_not_declared_has_no_traits() -> None:
    assert trait_of("SomebodyElsesOp", "variable") is None


def test_a_trait_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="op TraitTestWrong is declared with colour='red'; .* no such trait"):
        op("TraitTestWrong()", colour="red")  # type: ignore[call-arg]
    assert "TraitTestWrong" not in OPS
    with pytest.raises(KeyError):
        ops_with("colour")


def test_an_op_of_control_flow_and_its_reference_twin_play_the_same_part() -> None:
    assert {name for part in (ENTER_OPS, EXIT_OPS, MERGE_OPS, NEXT_OPS, SWITCH_OPS) for name in part} == FLOW_OPS
    for part in (ENTER_OPS, EXIT_OPS, MERGE_OPS, NEXT_OPS, SWITCH_OPS):
        assert len(part) == 2 and {name.removeprefix("Ref") for name in part} < set(part)


# ---------------------------------------------------------------- nobody keeps lists of op names


_TFMINI = Path(tfmini.__file__).parent
_OP_NAMES = {name for name, module in op_modules().items() if "sample_ops" not in module}
_LISTS_BY_INTENT = {
    "graph/graph_util.py": "must_run_on_cpu answers by TensorFlow's own list",
    "layers/contrib/regularizers.py": "summarize_activation is defined for three ops",
    "collectives/schedules.py": "merge_op names a function, not an op",
    "train/replicas/elastic.py": "as above",
    "estimator/evaluation.py": "an input that comes from an iterator ends",
    "layers/contrib/bijectors.py": "bijectors, some of which are called as ops are",
    "data/pipeline.py": "the ops with state that TensorFlow lets a saved iterator have",
    "compat/batch_norm_folding.py": "the graphs that TensorFlow's rewriter knows",
    "compat/quantize_graph.py": "as above",
    "compat/profiler.py": "the ops whose operations TensorFlow's profiler counts",
    "compat/tf_keras/initializers.py": "classes of Keras, some of which are called as ops are",
    "compat/tf_keras/library.py": "None in a text of Keras",
}


def _lists_of_op_names(path: Path) -> Iterator[str]:
    """Displays of two or more op names, and tests of a part of a name."""
    for statement in ast.parse(path.read_text()).body:
        if not (isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__"):
            for node in ast.walk(statement):
                items = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", [])
                names = [i.value for i in items if isinstance(i, ast.Constant) and i.value in _OP_NAMES]
                if len(names) > 1 or _looks_at_a_part(node):
                    yield f"{path.relative_to(_TFMINI)}:{node.lineno}: {ast.unparse(node)[:100]}"


def _looks_at_a_part(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in ("startswith", "endswith") and _is_op_type(node.func.value)
    return (
        isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn))
        and isinstance(node.left, ast.Constant) and _is_op_type(node.comparators[0])
    )  # fmt: skip


def _is_op_type(node: ast.expr) -> bool:
    return ast.unparse(node).endswith(("node.op", "holder.op", "source.op", "op.type"))


def test_no_module_lists_op_names_outside_of_their_declarations() -> None:
    paths = [p for p in _TFMINI.rglob("*.py") if p.relative_to(_TFMINI).parts[0] != "ops"]
    wrong = [line for path in sorted(paths) for line in _lists_of_op_names(path)]
    assert [line for line in wrong if line.partition(":")[0] not in _LISTS_BY_INTENT] == []
    assert {line.partition(":")[0] for line in wrong} == set(_LISTS_BY_INTENT), "an exception is no longer needed"
