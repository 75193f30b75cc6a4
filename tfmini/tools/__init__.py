"""The `tfmini` command. Imported by nothing else in the package."""
