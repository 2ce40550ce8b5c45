"""What every report as a page shares: one self-contained HTML file with autoescaping, its style and its data inside.

A template gets plain values, which are escaped, and `trusted_markup`: drawings and files of our own, and JSON in which
`<`, `>` and `&` are escaped, so that no name can end the script element that it lies in.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import json
import os
import re
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.languages import LANGUAGES, OWN, current_language
from parityscope.report._bilingual import in_language, pairs_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from jinja2 import BytecodeCache
    from markupsafe import Markup

TEMPLATES = Path(__file__).with_name("templates")
_SCRIPT = re.compile(r"(?s)<script>(.*?)</script>")
_leading: ContextVar[str] = ContextVar("leading", default="")


def laid_out(
    template: Path, values: Mapping[str, Any], *, told: Mapping[str, str] | None = None, drawn: Iterable[str] = ()
) -> str:
    """The page that `template` makes of `values`, with the script `copying`; a value that it lacks is an error.

    It is in the language that is spoken, and holds the other one beside it: `told` and `drawn` as `_bilingual.pairs_of` has them.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader([template.parent, TEMPLATES]),
        bytecode_cache=_compiled_templates(),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    copying = text_of(TEMPLATES / "language.js", TEMPLATES / "copy.js")
    page = environment.get_template(template.name).render({**values, "copying": copying})
    page = page.replace("<body>", f"<body>{_leading.get()}", 1)
    pairs = pairs_of(page, told or {}, drawn)
    data = embedded_json({"own": OWN, "now": current_language(), "names": LANGUAGES, "pairs": pairs})
    spoken = f'<script type="application/json" id="language-data">{data}</script>\n'
    head, scripts, tail = in_language(page, pairs).partition('<script type="application/json"')
    return f"{head}{spoken}{scripts}{tail}"


@contextlib.contextmanager
def leading_markup(markup: Markup) -> Iterator[None]:
    """Pages that are laid out inside begin with `markup`: the way back, where a server shows them."""
    before = _leading.set(markup)
    try:
        yield
    finally:
        _leading.reset(before)


def content_policy(page: str) -> str:
    """What a server says that a browser may do with one of these pages: run our own scripts, and load nothing from elsewhere.

    A script that is not made of our own files alone is none of ours, and does not run.
    """
    digests = [
        base64.b64encode(hashlib.sha256(body.encode("utf-8")).digest()).decode()
        for body in _SCRIPT.findall(page)
        if not _without_own_scripts(body).strip()
    ]
    scripts = " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data:; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


def _without_own_scripts(body: str) -> str:
    for path in sorted(TEMPLATES.glob("*.js")):
        body = body.replace(str(text_of(path)), "", 1)
    return body


@functools.cache
def _compiled_templates() -> BytecodeCache | None:
    """Where compiled templates are kept, as Python keeps its bytecode; None where that cannot be written.

    Compiling the report's template takes 0.05 s, as long as everything else about the page (measured).
    """
    from jinja2 import FileSystemBytecodeCache

    folder = TEMPLATES / "__pycache__"
    with contextlib.suppress(OSError):
        folder.mkdir(exist_ok=True)
        if os.access(folder, os.W_OK):
            return FileSystemBytecodeCache(str(folder))
    return None


def trusted_markup(text: str) -> Markup:
    """Text of our own making that a page takes as it is: a drawing, or what `embedded_json` and `text_of` read."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704 callers pass their own drawings, files and escaped JSON only


def text_of(*files: Path) -> Markup:
    """The text of our own style sheets or scripts, one after another."""
    return trusted_markup("".join(path.read_text(encoding="utf-8") for path in files))


def embedded_json(value: object) -> Markup:
    """`value` as JSON that is safe inside a script element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return trusted_markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))
