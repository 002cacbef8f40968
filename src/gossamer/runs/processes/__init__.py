"""The processes that a run needs."""
