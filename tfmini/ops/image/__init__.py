"""Images: codecs, resizing, colours, geometry, boxes (``tf.image``)."""
