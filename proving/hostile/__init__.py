"""A corpus of hostile cases: `python -m proving.hostile` builds each, runs it, and judges how it ended."""
