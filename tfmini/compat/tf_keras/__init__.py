"""``tf.keras``: Keras 2.3 on tfmini's graphs."""
