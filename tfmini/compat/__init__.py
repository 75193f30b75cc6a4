"""What old scripts import around the core."""
