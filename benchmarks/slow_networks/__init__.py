"""Gossamer beside what people would use instead, on slow networks for real: plan, study, results, page."""
