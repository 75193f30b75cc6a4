"""Where ops run: device setters, colocation, the placer, the partitioner. Pure functions, no I/O."""
