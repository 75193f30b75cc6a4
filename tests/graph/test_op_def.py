"""A wrong declaration or shape function says what is wrong with it, and where it stands."""

from __future__ import annotations

import pytest

import tfmini as tf
from tfmini.graph.op_types import OPS, load_ops
from tfmini.graph.registry import op


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("Foo x", "not an op declaration, like 'Name(x: T) -> y: T; T: {float, double}': 'Foo x'"),
        ("Foo(x) -> y: float", "not an argument declaration: 'x'"),
        ("Foo(x: T) -> y: T", "argument 'x' is of type 'T', which is neither a dtype nor an attr of the declaration"),
        ("Foo(x: N * float) -> y: float", "argument 'x' counts by 'N', which is no int attr"),
        ("Foo(x: T) -> y: T; T: type; k: int = abc", "'abc' is no default for attr 'k' of type int"),
        ("Foo(x: float) -> y: float; b: bool = maybe", "'maybe' is no default for attr 'b' of type bool"),
        ("Foo(x: T) -> y: T; T: {float} = DT_INT32", "the default 'DT_INT32' of attr 'T' is not among its allowed"),
        ("Foo(x: float) -> y: float; b: colour", "unknown attr type 'colour'"),
        ("Foo(x: flaot) -> y: float", "neither a dtype nor an attr of the declaration; did you mean 'float'?"),
        ("Foo(x: N * flaot) -> y: float; N: int", "argument 'x' is of type 'flaot', which is neither"),
        ("Foo(x: S) -> y: float", "argument 'x' is of type 'S', which is neither"),
        ("Foo(x: T) -> y: T; T: {float, dobule}", "attr 'T': there is no dtype 'dobule'; did you mean 'double'?"),
        ("Foo(x: T) -> y: T; T: {float, i}", "attr 'T': there is no dtype 'i'"),
        ("Foo(x: T) -> y: T; T: {}", "attr 'T' has no allowed values"),
        ("Foo(x: T) -> y: T; T: tyep", "unknown attr type 'tyep' in 'T: tyep'; did you mean 'type'?"),
        ("Foo(x: T) -> y: T; T: realnumbertyp", "did you mean 'realnumbertype'?"),
        ("Foo(x: T) -> y: T; T: type = DT_FLAOT", "no default for attr 'T' of type type; did you mean 'float'?"),
        ("Foo() -> y: float; v: tensor = unit8[1]", "no default for attr 'v' of type tensor; did you mean 'uint8'?"),
    ],
)
def test_a_wrong_declaration_is_told_at_once(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match="declaration of Foo.*: ") as caught:
        op(text)
    assert complaint in str(caught.value)
    assert "Foo" not in OPS


def test_all_of_tfminis_own_declarations_can_be_parsed() -> None:
    load_ops()
    for handle in list(OPS.values()):
        assert handle.op_def.name == handle.name


def test_the_op_def_of_an_operation_is_a_message() -> None:
    operation = tf.tanh(tf.constant([1.0])).op
    assert [field.name for field, _ in operation.op_def.ListFields()] == ["name", "input_arg", "output_arg", "attr"]
    assert operation.op_def.attr[0].name == "T"
    # Libraries read the fields of TensorFlow's objects, too.
    for name in ("op_def", "graph", "outputs"):
        assert getattr(operation, f"_{name}") is getattr(operation, name)
    for name in ("shape", "name"):
        assert getattr(operation.outputs[0], f"_{name}") == getattr(operation.outputs[0], name)


def test_an_op_def_has_the_field_names_of_its_message() -> None:
    op_def = (tf.constant(1) + tf.constant(2)).op.op_def
    assert (len(op_def.input_arg), len(op_def.output_arg)) == (2, 1)
