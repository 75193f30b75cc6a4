"""The documentation. A package, since Keras 2.3.1 installs one of this name, which would hide `docs.site`."""
