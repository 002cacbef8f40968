"""One worker's own part of a run: parameters, optimizer, algorithm state, and what guards them."""
