"""Measurements behind the figures in the documents."""
