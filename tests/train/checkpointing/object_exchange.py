"""A module with variables, tables and functions as a SavedModel, written and read with ``tf`` of either side."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def build(tf: Any, vocabulary: str) -> Any:
    """A module with functions of all kinds: methods, with conditionals, with effects, of other modules, of tables."""
    spec, index = tf.TensorSpec, tf.lookup.TextFileIndex

    class Model(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.v = tf.Variable(2.0, use_resource=True, name="vv")
            self.c = tf.Variable([1, 2], trainable=False, use_resource=True)
            self.listed = [tf.Variable(1.0, use_resource=True)]
            self.named = {"a": tf.Variable(4.0, use_resource=True)}
            self.fixed = tf.constant(3.0)
            self.part = tf.Module()
            self.part.w = tf.Variable([[1.0, 2.0]], use_resource=True)
            self.part.f = tf.function(lambda x: x + self.part.w, input_signature=[spec([None, 2], tf.float32)])
            lines = (vocabulary, tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER)
            self.words = tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(*lines), -1)
            self.tens = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["x", "y"], [10, 20]), -1)

        @tf.function(input_signature=[spec([None], tf.float32)])
        def __call__(self, x: Any) -> Any:
            return {"y": x * self.v + self.fixed, "z": tf.cast(self.c, tf.float32)}

        @tf.function
        def several(self, x: Any, training: bool = False) -> Any:
            return x + self.v if training else x - self.v

        @tf.function(input_signature=[])
        def add(self) -> None:
            self.v.assign_add(1.0)

        @tf.function(input_signature=[spec([None], tf.string)])
        def look(self, x: Any) -> Any:
            return self.words.lookup(x), [self.tens.lookup(x)]

        @tf.function(input_signature=[spec([], tf.float32)], autograph=False)
        def flow(self, x: Any) -> Any:
            check = tf.Assert(x < 100.0, [x])
            with tf.control_dependencies([check]):
                y = tf.cond(x > 0, lambda: x * self.v, lambda: -x)
            return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y + self.named["a"]), (0, y))[1]

    return Model()


def write(tf: Any, directory: Path, vocabulary: str) -> None:
    """Saves the module, a function of it called with two combinations of arguments."""
    model = build(tf, vocabulary)
    strings = [tf.TensorSpec([None], tf.string)]
    signatures = {
        "serving_default": model.__call__,
        "look": tf.function(lambda x: {"found": model.look(x)[0]}, input_signature=strings, autograph=False),
        "flow": model.flow,
    }
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        model.several(tf.constant([1.0, 2.0]), training=True)
        model.several(tf.constant([1.0, 2.0, 3.0]))
        tf.saved_model.save(model, str(directory), signatures)


def serve(tf: Any, directory: Path) -> dict[str, Any]:
    """What the graph for servers gives, by signature."""
    feeds = {"serving_default": [1.0, 4.0], "flow": 2.0, "look": ["a", "c", "q"]}
    found: dict[str, Any] = {}
    with tf.Session() as session:
        model = tf.saved_model.load(session, ["serve"], str(directory))
        for key, feed in feeds.items():
            told = model.signature_def[key]
            outputs = {name: told.outputs[name].name for name in sorted(told.outputs)}
            types = [info.dtype for info in told.inputs.values()], [told.outputs[name].dtype for name in outputs]
            values = session.run(outputs, {info.name: feed for info in told.inputs.values()})
            found[key] = [sorted(told.inputs), types, told.method_name, values]
    return found


def load(tf: Any, directory: Path) -> dict[str, Any]:
    """What the loaded objects are and give."""
    found: dict[str, Any] = {}
    with tf.Session() as session:
        model = tf.saved_model.load_v2(str(directory))
        found["variables"] = sorted((v.name, v.shape.as_list(), v.dtype.name) for v in tf.global_variables())
        found["trainable"] = [model.v.trainable, model.c.trainable, len(tf.trainable_variables())]
        session.run([[v.initializer for v in tf.global_variables()], tf.tables_initializer()])
        named = [model.v, model.c, model.listed[0], model.named["a"], model.part.w]
        found["values"] = [value.tolist() for value in session.run(named)]
        signature = model.signatures["serving_default"]
        found["signatures"] = sorted(model.signatures)
        found["arguments"] = repr(signature.structured_input_signature)
        found["results"] = repr(sorted(signature.structured_outputs.items()))
        made = signature(x=tf.constant([1.0, 2.0]))
        found["shapes"] = {name: made[name].shape.as_list() for name in sorted(made)}
        strings = tf.constant(["a", "c", "x"])
        calls = {
            "signature": made, "object": model(tf.constant([1.0, 2.0])), "converted": model([1.0, 2.0]),
            "training": model.several(tf.constant([1.0, 2.0]), training=True),
            "default": model.several(tf.constant([1.0, 2.0, 3.0])),
            "flow": [model.flow(tf.constant(x)) for x in (2.0, -2.0)], "look": model.look(strings),
            "look by name": model.signatures["look"](x=strings), "part": model.part.f(tf.constant([[1.0, 1.0]])),
            "gradients": tf.gradients(model(tf.constant([5.0]))["y"], [model.v]),
            "inside": tf.function(lambda x: model.flow(x) + 1.0, autograph=False)(tf.constant(2.0)),
        }  # fmt: skip
        found["calls"] = session.run(calls)
        session.run(model.add())
        found["after"] = session.run(model.v).tolist()
        wrong = {
            "shape": lambda: model(tf.constant([[1.0]])), "kind": lambda: model.several(tf.constant([1.0]), True),
            "no tensor": lambda: signature(x=[1.0]), "name": lambda: signature(z=tf.constant([1.0])),
            "tags": lambda: tf.saved_model.load_v2(str(directory), tags=["other"]),
            "nothing there": lambda: tf.saved_model.load_v2(str(directory / "not there")),
        }  # fmt: skip
        found["wrong"] = {name: _raised(function) for name, function in wrong.items()}
    return found


def refusals(tf: Any, directory: Path) -> dict[str, Any]:
    """What cannot be saved, and the default signatures of what can."""
    spec = [tf.TensorSpec([None], tf.float32)]

    def save(signatures: Any = None, obj: Any = None, **attributes: Any) -> list[Any]:
        module = tf.Module() if obj is None else obj
        for name, value in attributes.items():
            setattr(module, name, value)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            tf.saved_model.save(module, str(directory), signatures)
        with tf.Graph().as_default(), tf.Session() as session:
            made = tf.saved_model.load(session, ["serve"], str(directory)).signature_def
            return [(k, sorted(s.inputs), sorted(s.outputs)) for k, s in sorted(made.items()) if not k.startswith("__")]

    def of(function: Any, **kwargs: Any) -> Any:
        return tf.function(function, autograph=False, **{"input_signature": spec, **kwargs})

    chance, hidden = tf.random_uniform([]), tf.Variable(1.0, use_resource=True)
    tried = {
        "object": lambda: save(obj=object()), "function": lambda: save(obj=of(lambda x: x)),
        "empty": save, "one": lambda: save(f=of(lambda x: x * 2)), "tuple": lambda: save(f=of(lambda x: (x, x))),
        "nested": lambda: save(f=of(lambda x: {"a": [x]})), "two": lambda: save(f=of(tf.exp), g=of(tf.sin)),
        "given": lambda: save(of(lambda x: x * 2)), "no result": lambda: save(of(lambda x: None)),
        "empty result": lambda: save({"e": of(lambda x: {})}), "nested result": lambda: save(of(lambda x: {"a": [x]})),
        "no signature": lambda: save(of(tf.exp, input_signature=None)), "no function": lambda: save(tf.exp),
        "nested argument": lambda: save(
            of(lambda x: {"s": x["b"] + x["c"]}, input_signature=[{"b": spec[0], "c": spec[0]}])
        ),
        "concrete": lambda: save(
            of(tf.add, input_signature=None).get_concrete_function(spec[0], tf.TensorSpec([], tf.float32, name="why"))
        ),
        "captured": lambda: save(f=of(lambda x: x * chance)), "untracked": lambda: save(f=of(lambda x: x * hidden)),
        "reserved": lambda: save(signatures=None, **{"obj": _with_signatures(tf)}),
    }  # fmt: skip
    return {name: _raised(function) for name, function in tried.items()}


def _with_signatures(tf: Any) -> Any:
    module = tf.Module()
    module.signatures = tf.Variable(1.0, use_resource=True)
    return module


def _raised(function: Any) -> Any:
    try:
        return function()
    except (AssertionError, OSError, TypeError, ValueError) as error:
        return type(error).__name__


def exchange(tf: Any, directory: str) -> dict[str, Any]:
    """One side's turn: writes ``directory``/theirs, and returns what it finds in ``directory``/ours."""
    folder, found = Path(directory), {}
    for name, turn in (
        ("write", lambda: write(tf, folder / "theirs", str(folder / "vocabulary.txt"))),
        ("serve", lambda: serve(tf, folder / "ours")),
        ("load", lambda: load(tf, folder / "ours")),
        ("refusals", lambda: refusals(tf, folder / "tried")),
    ):
        with tf.Graph().as_default():
            found[name] = turn()
    return found
