"""From the nodes of one task to a `Program` of generated Python. No I/O."""
