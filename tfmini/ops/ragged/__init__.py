"""Ragged tensors (``tf.ragged``)."""
