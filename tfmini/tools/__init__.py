"""The `tfmini` command. No other package imports it."""
