"""How images become what a network reads, as data: kernels, where the image is put, normalization.

`kernels.py` resamples one axis, `recipe.py` says what is done to an image and does it, `recipe_file.py` reads that from a
file. Numbers stay float64 until the last step.
"""
