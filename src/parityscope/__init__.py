"""Parityscope tells why a deployed network disagrees with the original, where it starts, and how to repair it."""

__version__ = "0.1.0"
