"""What follows from the snapshots of a running cluster, and how they are asked for."""
