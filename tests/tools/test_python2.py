"""Python 2 forms are found, and code that Python 3 shares is not reported."""

from __future__ import annotations

import pytest

from tfmini.tools.python2 import in_source, of_error


def found(source: str) -> list[tuple[int, str]]:
    return [(finding.line, finding.form) for finding in in_source(source)]


@pytest.mark.parametrize(
    ("source", "form"),
    [
        ('print "a"', "print statement"),
        ("if x: print y", "print statement"),
        ("print", "print statement"),
        ("print >>f, x", "print to a file"),
        ("try: pass\nexcept (A, B), e: pass", "'except X, e'"),
        ("raise E, 'm'", "'raise X, message'"),
        ("exec code in d", "exec statement"),
        ("`x`", "backticks"),
        ("a <> b", "operator <>"),
        ("x = 0755", "octal number with a leading 0"),
        ("x = 10L", "long number"),
        ("def f(a, (b, c)): pass", "parameters that unpack a tuple"),
        ("x = ur'a'", "string with the prefix ur"),
        ("if a:\n        b()\n\tc()\n", "indentation that mixes tabs and blanks"),
    ],
)
def test_each_python_2_form_is_found(source: str, form: str) -> None:
    assert form in [name for _, name in found(source)]


@pytest.mark.parametrize(
    "source",
    [
        'print("a", file=f)',
        "print (x)",
        "printer = 1",
        "s = 'print x'  # print y",
        '"""\nprint x\n"""',
        "except_ = 3",
        "raise E('a, b')",
        "x = 0o755 + 0 + 10",
        "exec(code)",
        "a.print (x)",
    ],
)
def test_python_3_is_not_reported(source: str) -> None:
    assert found(source) == []


def test_findings_have_the_lines_of_the_source() -> None:
    assert found('x = """\n\n"""\nprint x\n') == [(4, "print statement")]


def test_errors_of_tfmini_are_no_python_2_findings() -> None:
    import tfmini as tf

    with pytest.raises(AttributeError) as raised:
        tf.constant(1).next  # noqa: B018
    assert of_error(raised.value, 1) is None
