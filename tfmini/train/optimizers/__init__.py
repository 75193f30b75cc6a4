"""Optimizers, slots, moving averages, learning rate schedules and loss scales."""
