"""The site of the documentation: every public name has an entry, and every page a place. Sphinx itself is not run."""

from __future__ import annotations

import functools
import inspect
import re
from pathlib import Path

import pytest

import tfmini as tf
from docs.site import assemble, entries, pages
from tfmini import namespace
from tfmini.export import documented_arguments

ROOT = Path(__file__).parents[1]
ENTRY = re.compile(r"^\.\. py:(\w+):: (tf\.[\w.]+)", re.MULTILINE)


def test_every_public_name_has_an_entry_on_one_page() -> None:
    found = [name for names in pages.pages(namespace.public_names()).values() for name in names]
    assert sorted(found) == namespace.public_names()
    assert [name for name in found if entries.entry(name).name != name] == []
    assert len(found) > 3000


def test_the_pages_have_an_entry_for_every_public_name() -> None:
    pytest.importorskip("sphinx")
    found = [name for text in assemble.api_pages().values() for _, name in ENTRY.findall(text)]
    assert sorted(found) == namespace.public_names()


def test_an_entry_has_what_its_definition_says() -> None:
    entry = entries.entry("tf.nn.conv2d")
    assert (entry.kind, entry.same_as) == ("function", "")
    assert entry.signature.startswith("(input: TensorLike, filter: TensorLike | None = None, strides: int | ")
    assert "Args:" in entry.text and "Raises:" in entry.text


def test_a_name_of_several_namespaces_is_described_once() -> None:
    assert entries.entry("tf.math.add").same_as == "tf.add"
    assert entries.entry("tf.distribute.Server").same_as == "tf.train.Server"
    assert entries.entry("tf.initialize_all_variables").same_as == "tf.global_variables_initializer"
    described = [entry for entry in map(entries.entry, namespace.public_names()) if not entry.same_as]
    assert {entry.same_as for entry in map(entries.entry, namespace.public_names())} - {""} <= {
        e.name for e in described
    }
    bare = [entry.name for entry in described if not entry.text and entry.kind != "module"]
    assert bare == []


def test_a_class_has_its_members_and_names_those_of_its_public_base() -> None:
    adam = entries.entry("tf.train.AdamOptimizer")
    assert adam.kind == "class" and "beta1" in adam.signature
    assert "minimize" in dict(adam.inherited)["tf.train.Optimizer"]
    members = {member.name: member for member in entries.entry("tf.train.Optimizer").members}
    assert members["tf.train.Optimizer.minimize"].signature.startswith("(loss: ")
    keys = {member.name: member.text for member in entries.entry("tf.GraphKeys").members}
    assert keys["tf.GraphKeys.UPDATE_OPS"] == "The value ``'update_ops'``."


def test_an_op_has_its_dtypes_and_a_message_its_fields() -> None:
    text = entries.entry("tf.raw_ops.MatMul").text
    assert "  a: T, one of bfloat16, float16, float32" in text and "  transpose_a: attr of type bool" in text
    assert "  allow_soft_placement: bool\n" in entries.entry("tf.ConfigProto").text


def test_a_module_has_the_first_words_of_its_docstring() -> None:
    pytest.importorskip("tf_slim")
    assert entries.entry("tf.contrib.slim.dataset").text == "Contains the definition of a Dataset."


def test_differences_from_tensorflow_are_marked_at_the_names_that_differ() -> None:
    names = namespace.public_names()
    found = [entry for name in names for entry in (entries.entry(name), *entries.entry(name).members)]
    marked = {entry.name: entry.differs for entry in found if entry.differs}
    assert {"tf.py_function", "tf.Session.partial_run", "tf.Operation.op_def"} <= set(marked)
    ((here, why),) = marked["tf.py_function"]
    assert "graph of its own" in here and "eager mode" in why
    assert len(marked) > 40
    told = {row for entry in found for row in entry.differs}
    rows = [(names, here, why) for names, here, why in entries.rows_of_differences() if any("tf." in n for n in names)]
    absent = [names for names, here, why in rows if (here, why) not in told and "refused" not in here]
    assert absent == []


def test_the_docstring_of_an_argument_keeps_all_its_lines() -> None:
    section = "Args:\n  a, b,\n    c: numbers, or\n    `Tensor`s.\n  The others are those of `X`."
    text = f"Does it.\n\n{section}\n\nReturns:\n  One."
    assert pages.prepared(text) == (
        "Does it.\n\nThe others are those of `X`.\n\nArgs:\n  a, b, c: numbers, or `Tensor`\\ s.\n\nReturns:\n  One."
    )


def test_the_site_has_every_page_under_its_section() -> None:
    texts, files = assemble.written_pages()
    assert {f"{page.relative_to(ROOT / 'docs')}" for page in (ROOT / "docs").rglob("*.md")} <= set(texts)
    listed = re.findall(r"^/(\S+)$", "\n".join(texts.values()), re.MULTILINE)
    listable = {path for path in texts.keys() | files.keys() if path.endswith((".md", ".ipynb"))}
    sections = {"index.md", *(path for path in listable if path.endswith("/index.md"))}
    assert sorted(listed) == sorted(set(listed))
    assert listable - sections - set(listed) == set()


def test_links_of_the_site_lead_to_pages_and_files_of_the_site() -> None:
    texts, files = assemble.written_pages()
    known = texts.keys() | files.keys()
    for path, text in texts.items():
        here = (ROOT / path).parent
        targets = {(here / t).resolve() for _, t, _ in assemble.LINK.findall(text) if "://" not in t and "." in t}
        missing = {str(t.relative_to(ROOT)) for t in targets if t.is_relative_to(ROOT)} - known
        assert missing == set(), path


# The names that scripts of the time use most, and all layers and optimizers.
MUCH_USED = """
tf.train.Server tf.train.ClusterSpec tf.device tf.train.replica_device_setter tf.Variable tf.placeholder
tf.reduce_mean tf.cast tf.train.Supervisor tf.argmax tf.equal tf.matmul tf.train.Saver tf.zeros
tf.train.MonitoredTrainingSession tf.nn.softmax tf.reduce_sum tf.summary.merge_all tf.Session tf.summary.scalar
tf.get_variable tf.log tf.nn.relu tf.constant tf.logging.set_verbosity tf.train.StopAtStepHook
tf.train.SyncReplicasOptimizer tf.reshape tf.name_scope tf.nn.softmax_cross_entropy_with_logits tf.square
tf.get_collection tf.add tf.random_normal tf.summary.FileWriter tf.truncated_normal tf.group tf.nn.sigmoid tf.identity
tf.control_dependencies tf.trainable_variables tf.contrib.framework.get_or_create_global_step tf.constant_initializer
tf.nn.l2_loss tf.add_n tf.sqrt tf.variable_scope tf.set_random_seed tf.train.exponential_decay tf.global_variables
tf.multiply tf.summary.histogram tf.gfile.MakeDirs tf.FIFOQueue tf.nn.conv2d tf.nn.max_pool tf.gfile.Exists
tf.clip_by_value tf.nn.xw_plus_b tf.add_to_collection tf.train.ExponentialMovingAverage tf.local_variables tf.Graph
tf.nn.dropout tf.assign tf.concat tf.losses.softmax_cross_entropy tf.train.global_step tf.random_uniform tf.split
tf.reduce_max tf.one_hot tf.transpose tf.variables_initializer tf.train.Scaffold tf.random_normal_initializer
tf.fixed_size_partitioner tf.shape tf.abs tf.nn.bias_add tf.contrib.slim.conv2d tf.contrib.slim.fully_connected
tf.train.Optimizer.minimize tf.Session.run
"""


LAYERS = [name for name in namespace.public_names() if re.fullmatch(r"tf\.layers\.[a-zA-Z]\w+", name)]
OPTIMIZERS = [name for name in namespace.public_names() if re.fullmatch(r"tf\.train\.\w+Optimizer", name)]


@pytest.mark.parametrize("name", [*MUCH_USED.split(), *LAYERS, *OPTIMIZERS])
def test_a_name_that_is_much_used_says_what_its_arguments_are(name: str) -> None:
    value = functools.reduce(getattr, name.split(".")[1:], tf)
    kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    arguments = {p.name for p in inspect.signature(value).parameters.values() if p.kind not in kinds}
    told = documented_arguments(inspect.getdoc(value)).keys()
    assert sorted(arguments - told - {"self", "name", "scope", "_sentinel"}) == []
