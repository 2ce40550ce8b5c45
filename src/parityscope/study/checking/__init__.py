"""`parityscope check`: every pair of a policy file examined, and held against what was measured before.

`pairs` reads the file, `baseline` keeps the small part of a study that later ones are held against, `running` examines.
"""

from __future__ import annotations
