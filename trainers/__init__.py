"""What trainers consume: token rows with advantages."""
