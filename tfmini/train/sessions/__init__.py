"""Sessions for training: monitored sessions, session managers and supervisors."""
