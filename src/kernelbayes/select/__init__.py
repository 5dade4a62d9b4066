"""Choosing kernels and ridges from data, and correcting the levels of intervals."""
