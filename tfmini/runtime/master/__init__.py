"""The master service: sessions, plans, registration, and the master's side of a step."""
