"""What a traced step records, and its forms."""
