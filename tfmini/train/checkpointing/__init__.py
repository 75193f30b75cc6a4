"""Savers, object-based checkpoints, files of graphs, and SavedModels."""
