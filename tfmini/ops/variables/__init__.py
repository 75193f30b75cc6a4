"""Variables: their state, the ops that read and change them, ``tf.get_variable`` and its scopes."""
