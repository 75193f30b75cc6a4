"""Embedding tables that grow with the ids that come: options, state, ops, and `tf.get_embedding_variable`."""
