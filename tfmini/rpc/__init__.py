"""How processes talk: messages, codec, reactor, transports, endpoints.

Import from the modules: `messages` (the message kinds), `endpoint` (serving, calling and connecting),
`reactor` (the event loop of the process), `addresses` and `keys`.
"""

from tfmini.library_log import guard_runtime_logs

guard_runtime_logs()  # peers, whose words are logged, come by this package
