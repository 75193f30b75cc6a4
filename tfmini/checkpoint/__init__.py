"""Reads and writes TensorFlow's checkpoint files, byte for byte. Knows names and arrays, no graph and no session."""
