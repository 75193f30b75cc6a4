"""Hooks of monitored sessions, which run before and after every step."""
