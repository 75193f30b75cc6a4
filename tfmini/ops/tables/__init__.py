"""Lookup tables (``tf.lookup``)."""
