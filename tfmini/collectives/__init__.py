"""Collectives as pure state machines: what to send next, given what has come. No sockets, no clock."""
