"""Sparse tensors (``tf.sparse``) and sets (``tf.sets``)."""
