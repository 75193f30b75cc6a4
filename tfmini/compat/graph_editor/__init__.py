"""``tf.contrib.graph_editor``: selects parts of a graph, copies them, and changes how its ops are connected."""
