"""Checkpoint files, TensorFlow's byte for byte: arrays and names in, files out, and back. No graph, no session."""
