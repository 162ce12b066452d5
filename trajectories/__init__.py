"""Pure data: what a rollout was, how it is written down, and what trainers read of it."""
