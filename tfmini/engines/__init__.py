"""Engines: each starts the tasks of `tfmini launch` somewhere else. `tfmini.tools.engine` is their interface."""
