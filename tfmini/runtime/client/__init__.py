"""The client's side: ``tf.Session``, feeds and fetches, and how a session reaches its master."""
