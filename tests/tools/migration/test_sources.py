"""Sources of Python 2 are parsed: each statement that Python 3 refuses is found, and the rest is a tree."""

from __future__ import annotations

import ast

import pytest

from tfmini.tools.migration.sources import parse, rewritten


@pytest.mark.parametrize(
    ("source", "line", "what"),
    [
        ('x = 1\nprint "a", x\n', 2, "print statement"),
        ("print >>f, x\nprint y\n", 1, "print statement"),
        ("try:\n    pass\nexcept A:\n    pass\nexcept (B, C), e:\n    print e\n", 5, "'except X, e'"),
        ("def f():\n    raise E, 'm'\n", 2, "'raise X, message'"),
        ("exec code in d\n", 1, "exec statement"),
        ("`x`\n", 1, "backticks"),
        ("a <> b\n", 1, "operator <>"),
        ("x = 0755\n", 1, "long or octal number"),
        ("x = (1,\n     10L)\n", 2, "long or octal number"),
        ("def f(a, (b, c)): pass\n", 1, "parameters that unpack a tuple"),
        ("x = ur'a'\n", 1, "string with the prefix ur"),
        ("if a:\n        b()\n\tc()\n", 3, "indentation that mixes tabs and blanks"),
    ],
)
def test_each_statement_of_python_2_is_found(source: str, line: int, what: str) -> None:
    parsed = parse(source)
    assert (line, what) in [(finding.line, finding.what) for finding in parsed.findings]
    assert parsed.is_python_2 and parsed.tree.body
    made = rewritten(source, parsed.findings)
    assert made is not None and ast.dump(ast.parse(made))


def test_python_3_has_no_findings() -> None:
    source = 'from x import y\nprint("a", end="", file=f)\nx = u"b"\nasync def f(): await g()\n"\\d"\n'
    parsed = parse(source)
    assert parsed.findings == () and not parsed.is_python_2


def test_a_source_with_both_kinds_of_print_is_parsed() -> None:
    parsed = parse("from __future__ import print_function\nprint('a', file=f)\ntry: pass\nexcept E, e: pass\n")
    assert [(f.line, f.what) for f in parsed.findings] == [(4, "'except X, e'")]


def test_lines_stay_where_they_are() -> None:
    source = "print 'a'\n\n\ndef f():\n    print 'b', \\\n        x\n    return tf.mul(1, 2)\n"
    calls = [node for node in ast.walk(parse(source).tree) if isinstance(node, ast.Attribute)]
    assert [call.lineno for call in calls] == [7]


def test_names_that_are_keywords_now() -> None:
    parsed = parse("x.cuda(async=True)\ny = tf.mul(1, 2)\n")
    assert [(f.line, f.kind) for f in parsed.findings] == [(1, "python")]
    assert len(parsed.tree.body) == 2


def test_what_no_python_parses_is_one_finding() -> None:
    parsed = parse("x = 1\ndef f(:\n")
    assert [(f.line, f.kind) for f in parsed.findings] == [(2, "syntax")]
    assert parsed.tree.body == [] and not parsed.is_python_2
    assert [f.kind for f in parse("x = '\0'\n").findings] == ["syntax"]


def test_a_rewritten_source_does_the_same_in_python_3() -> None:
    source = (
        "import cPickle, urllib2\nfrom itertools import izip\n"
        "def f(d, (a, b)):\n    print >>out, 'n', a\n"
        "    return [k for k, v in d.iteritems() if v <> 2] + [x for x in izip([a], [b])]\n"
    )
    made = rewritten(source, parse(source).findings)
    assert made is not None
    names: dict[str, object] = {}
    exec(made.replace("out", "__import__('sys').stderr"), names)
    assert names["f"]({"x": 1, "y": 2}, (3, 4)) == ["x", (3, 4)]  # type: ignore[operator]


def test_a_source_of_python_3_changes_only_where_a_finding_has_a_fixer() -> None:
    from tfmini.tools.migration.sources import Obstacle

    source = "print('a', 'b')\nfor i in xrange(len(d.keys())): pass\n"
    made = rewritten(source, [Obstacle(2, "xrange", "write range", "python 2", fixer="xrange")])
    assert made == "print('a', 'b')\nfor i in range(len(d.keys())): pass\n"
