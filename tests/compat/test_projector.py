"""The configuration of TensorBoard's projector."""

from __future__ import annotations

from pathlib import Path

from google.protobuf import text_format

import tfmini as tf


def test_configuration_is_written_beside_the_events(tmp_path: Path) -> None:
    projector = tf.contrib.tensorboard.plugins.projector
    config = projector.ProjectorConfig()
    embedding = config.embeddings.add()
    embedding.tensor_name, embedding.metadata_path = "words", "words.tsv"
    embedding.sprite.single_image_dim.extend([28, 28])
    projector.visualize_embeddings(tf.summary.FileWriter(str(tmp_path)), config)
    read = text_format.Parse((tmp_path / "projector_config.pbtxt").read_text(), projector.ProjectorConfig())
    assert read == config and read.embeddings[0].sprite.single_image_dim[:] == [28, 28]
