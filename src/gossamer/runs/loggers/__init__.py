"""Who is told how a run goes."""
