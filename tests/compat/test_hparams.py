"""`tf.contrib.training.HParams`."""

from __future__ import annotations

import pytest

import tfmini as tf

training = tf.contrib.training


def test_hyperparameters_keep_their_types() -> None:
    given = training.HParams(rate=0.1, layers=2, sizes=[1, 2, 3], name="a", flag=True)
    assert given.parse("rate=1,layers=3,sizes[1]=9,name=b,flag=false") is given
    assert given.values() == {"rate": 1.0, "layers": 3, "sizes": [1, 9, 3], "name": "b", "flag": False}
    assert isinstance(given.rate, float) and "rate" in given and given.get("none", 5) == 5
    assert given.parse_json('{"sizes": [4]}').sizes == [4]
    assert training.HParams(**{"a": 1}).to_json() == '{"a": 1}'
    for text, told in (
        ("other=1", "Unknown hyperparameter type for other"), ("layers=x", "Could not parse hparam 'layers'"),
        ("layers=1,layers=2", "Multiple assignments"),
        ("layers[0]=1", "Must not pass a list"), ("layers=9" + "9" * 5000, "Could not parse|Exceeds"),
        ("layers", "Malformed hyperparameter value: layers"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=told):
            given.parse(text)
    for name, value, told in (
        ("layers", 1.5, "Could not cast hparam 'layers'"), ("layers", [1], "Must not pass a list"),
        ("sizes", 1, "Must pass a list"), ("flag", 1, "Could not cast"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=told):
            given.set_hparam(name, value)
    with pytest.raises(ValueError, match="reserved: parse"):
        training.HParams(parse=1)
    for text in ('{"other": 1}', "[1]", "3", "{", "[" * 5000, '{"rate": 1' + "0" * 400 + "}", '{"layers": NaN}'):
        with pytest.raises(ValueError):
            given.parse_json(text)
    with pytest.raises(KeyError, match="There is no hyperparameter 'other'"):  # TensorFlow's class
        given.override_from_dict({"other": 1})
    given.del_hparam("rate")
    assert "rate" not in given


def test_hyperparameters_as_a_message_and_as_text() -> None:
    given = training.HParams(a=1, b=[2.0, 3.5], c="relu6", d=True, e=[True, False], f=["x"])
    message = given.to_proto()
    assert message.hparam["b"].float_list.value == [2.0, 3.5] and message.hparam["c"].bytes_value == b"relu6"
    for again in (training.HParams(hparam_def=message), training.HParams.from_proto(message)):
        assert again.values() == given.values() and type(again.d) is bool
    assert str(given) == "a=1,b=[2.0, 3.5],c=relu6,d=True,e=[True, False],f=['x']"
    assert repr(training.HParams(b=1, a=2)) == "HParams([('a', 2), ('b', 1)])"
    assert training.HParams(a=0, c="").parse(str(training.HParams(a=4, c="d"))).values() == {"a": 4, "c": "d"}
    with pytest.raises(ValueError, match="mutually exclusive"):
        training.HParams(hparam_def=message, a=1)
    with pytest.raises(AssertionError):
        training.HParams(hparam_def="a=1")
    with pytest.raises(ValueError, match="Unsupported parameter type"):
        training.HParams(a=None).to_proto()


def test_a_second_assignment_is_named() -> None:
    for text, name in (("a=[1,2],a[0]=10", "a"), ("a[0]=10,a=[1]", "a"), ("a[0]=1,a[0]=2", r"a\[0\]")):
        with pytest.raises(ValueError, match=f"Multiple assignments to variable '{name}' in"):
            training.HParams(a=[1, 2]).parse(text)


def test_a_metagraph_keeps_hyperparameters_of_the_collection() -> None:
    with tf.Graph().as_default():
        tf.add_to_collection("hparams", training.HParams(a=1, b=[2.0]))
        tf.constant(1)
        meta = tf.train.export_meta_graph()
    with tf.Graph().as_default():
        tf.train.import_meta_graph(meta)
        assert [kept.values() for kept in tf.get_collection("hparams")] == [{"a": 1, "b": [2.0]}]
