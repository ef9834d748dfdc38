"""Grids of experiments and what reads their records."""
