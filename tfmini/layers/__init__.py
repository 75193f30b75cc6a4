"""What models are built from: layers, losses, metrics, regularizers (``tf.layers``, ``tf.losses``, ``tf.metrics``)."""
