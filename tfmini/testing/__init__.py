"""Public tools for tests: clusters of real processes, and a simulated network with virtual time."""
