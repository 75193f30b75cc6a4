"""Assertions, checks and printing (``tf.debugging``, ``tf.Print``)."""
