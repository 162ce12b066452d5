"""Completion text to messages and back, one format family a file."""
