"""The vocabulary: each family of ops in a file of its own, from declaration to kernel."""
