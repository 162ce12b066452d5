"""What trainers consume, a reference trainer, and adapters for others."""
