"""Random ops (``tf.random``)."""
