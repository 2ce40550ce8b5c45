"""What `parityscope new` writes: the smallest real plug-in of each kind, kept as code that is checked like all other.

`scaffold_name` and `USR000` stand for the name and the code that are asked for.
"""
