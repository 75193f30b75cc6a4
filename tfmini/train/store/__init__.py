"""`tf.ParameterStore`."""
