"""The partition inspector: which op runs where, and what one step sends. See `tfmini.inspection.api`."""
