"""Layers, variables, regularizers and summaries of ``tf.contrib`` and slim."""
