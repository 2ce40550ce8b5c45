"""What a deployment may do to its inputs that the reference's preprocessing does not, and the search for it.

`steps.py` says what a step is, `normalizations.py`, `images.py` and `tokens.py` list them, `searching.py` tries them.
"""
