"""SavedModels: graphs with their variables, signatures and assets in a directory (``tf.saved_model``)."""
