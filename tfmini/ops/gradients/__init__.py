"""Reverse-mode differentiation (``tf.gradients``) and the registry of gradients."""
