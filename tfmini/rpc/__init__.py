"""How processes talk: messages, codec, reactor, transports, endpoints.

Import what you need from the modules: `messages` (what is said), `endpoint` (who says it to
whom), `reactor` (the one loop of the process), `security` (addresses and keys).
"""
