"""Collectives as pure state machines: received messages in, messages to send out. No sockets, no clock."""
