"""Sandboxes in which tools run, behind one contract."""
