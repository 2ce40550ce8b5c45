"""Layers whose arithmetic or fault is known, because it was planted by other means than those under test."""
