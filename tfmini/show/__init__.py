"""What shows: the inspector, what a running cluster does, its live page, predictions and proposals of placements."""
