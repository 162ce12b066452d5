"""Running many rollouts and keeping what they give."""
