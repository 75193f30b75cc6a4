"""What a task tells of itself: a snapshot, made when somebody asks, from what the task keeps anyway."""
