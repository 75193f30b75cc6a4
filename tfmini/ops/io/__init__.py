"""Files in the graph: readers, parsing, checkpoint ops, TFRecord files."""
