"""What `tf.profiler` prints; its numbers beside those of TensorFlow 1.15.5 are in `tests.programs.era_profiles`."""

from __future__ import annotations

from pathlib import Path

import pytest

import tfmini as tf


def model() -> None:
    x = tf.placeholder(tf.float32, [4, 6], name="x")
    with tf.variable_scope("net"):
        weights = tf.get_variable("w", [6, 500])
        tf.get_variable("b", [500])
        tf.matmul(x, weights, name="product")
    tf.get_variable("fixed", [7], trainable=False)


def test_the_report_is_tensorflows(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with tf.Graph().as_default() as graph:
        model()
        root = tf.contrib.tfprof.model_analyzer.print_model_analysis(graph)
        lines = capsys.readouterr().out.splitlines()
        assert root.total_parameters == 3500
        assert lines[lines.index("node name | # parameters") + 1 : -2] == [
            "_TFProfRoot (--/3.50k params)",
            "  net (--/3.50k params)",
            "    net/b (500, 500/500 params)",
            "    net/w (6x500, 3.00k/3.00k params)",
        ]
        builder = tf.profiler.ProfileOptionBuilder(tf.profiler.ProfileOptionBuilder.float_operation())
        path = tmp_path / "report"
        options = builder.with_file_output(str(path)).with_accounted_types(["MatMul"]).build()
        assert tf.profiler.profile(cmd="op", options=options).total_float_ops == 24000
        assert "MatMul                      24000 flops (100.00%, 100.00%)" in path.read_text()
        assert not capsys.readouterr().out


def test_views_and_outputs_that_are_not_there_are_refused() -> None:
    with tf.Graph().as_default():
        model()
        with pytest.raises(tf.errors.UnimplementedError, match="no view 'code'"):
            tf.profiler.profile(cmd="code")
        with pytest.raises(tf.errors.UnimplementedError, match="no output 'timeline'"):
            tf.profiler.profile(options={"output": "timeline:outfile=x"})
