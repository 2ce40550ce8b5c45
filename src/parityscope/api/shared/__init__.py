"""The work of the verbs that a command and the function of its name share: what is asked as records -> a `Report`.

A command makes the records of its words and prints what comes back; a function makes them of what a program has in its hands.
"""

from __future__ import annotations
