"""Ops on strings (``tf.strings``)."""
