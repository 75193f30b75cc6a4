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
