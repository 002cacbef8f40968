"""The loop inside a run."""
