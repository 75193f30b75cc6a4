"""``tf.distributions``: probability distributions made of ops."""
