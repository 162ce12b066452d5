"""Model clients: one session contract over servers that parse and engines that take tokens."""
