"""Tasks, the agent loop, and rewards."""
