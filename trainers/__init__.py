"""Rollouts to gradient steps: adapters for trainers, and a reference loop."""
