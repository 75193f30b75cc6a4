"""Metrics (``tf.metrics``): each function returns (value, update op)."""
