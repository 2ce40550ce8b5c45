"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from parityscope.visible import make_encodable

if TYPE_CHECKING:
    from pathlib import Path


def write_whole(path: Path, content: bytes | str) -> None:
    """Writes `content` to `path`, text as UTF-8; whoever reads meanwhile finds the old file, or none, or the new one.

    Until it is complete the file has a name of its own that ends in `.part`, so that of several that write the same file at
    once the last one stays. Where writing fails nothing of it is left, and the old file is untouched.

    Raises:
        OSError: the file cannot be written.
    """
    unfinished = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        unfinished.unlink(missing_ok=True)  # of a process that had this number before
        # Made anew: nobody's file is written to through a link that stands there.
        with unfinished.open("xb") as file:
            file.write(make_encodable(content, "utf-8").encode() if isinstance(content, str) else content)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
