"""Pages of the site that are no file of docs/: one of each code, from `parityscope explain`, and those of the repository's top.

`mkdocs.yml` names this file as a hook. A translation says `<!-- block 2 -->` where the second block of code of the English page
stands, so that code is written once. Links between docs/ and the top, and to files that are no page, hold in the repository;
here they are led to the page of that file, or become the file's name.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from code_pictures import draw_code, shown_codes
from mkdocs.plugins import event_priority

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

__all__ = ["on_config", "on_files", "on_page_markdown", "on_post_page", "on_post_template"]

ROOT = Path(__file__).resolve().parents[2]
FROM_THE_TOP = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "bench/README.md")
PUBLIC = ("__init__.py", "api", "errors.py", "records.py", "version.py")
_PUBLIC = tempfile.TemporaryDirectory()
SHIM = "https://unpkg.com/iframe-worker/shim"
SEARCH = '<div class="md-search" data-md-component="search" role="dialog"'
NAVIGATION = re.compile(r'(<nav\b[^>]*\baria-label=")([^"]*)(")')
SECTION = re.compile(
    r'(<nav class="md-nav" data-md-level="\d+") aria-labelledby="[^"]*"'
    r'(.*?<label class="md-nav__title"[^>]*>.*?</span>\s*(.*?)\s*</label>)',
    re.DOTALL,
)
# The theme's script puts a navigation without a name around each button that copies.
COPYING = """<script>new MutationObserver(() => document.querySelectorAll("nav.md-code__nav:not([role])").forEach(
  (one) => one.setAttribute("role", "presentation"))).observe(document.body, {childList: true, subtree: true})</script></body>"""
PLACE = re.compile(r"^<!-- block (\d+) -->$", re.MULTILINE)
BLOCK = re.compile(r"^```[^\n]*\n.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
API = """# Python reference

The verbs as functions; [Python](python.md) shows them at work.

::: parityscope
    options:
      show_root_heading: false
      members_order: source

## Results

::: parityscope.api.results
    options:
      show_root_heading: false

## Options that several verbs take

::: parityscope.api.options
    options:
      show_root_heading: false
"""


@event_priority(100)  # before the plug-in that reads Python
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lets the page of Python read a copy of what is public: to read all modules takes ten times as long, once a language."""
    for name in PUBLIC:
        source, copy = ROOT / "src" / "parityscope" / name, Path(_PUBLIC.name, "parityscope", name)
        if source.is_dir():
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        else:
            copy.parent.mkdir(exist_ok=True)
            shutil.copyfile(source, copy)
    config.plugins["mkdocstrings"].config["handlers"]["python"]["paths"] = [_PUBLIC.name]
    return config


@event_priority(-100)  # after the plug-in of languages, which knows only files that lie in docs/
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of docs/, and beside them those that are made here."""
    from mkdocs.structure.files import File

    made = {name: (ROOT / name).read_text(encoding="utf-8") for name in FROM_THE_TOP}
    language = config.plugins["i18n"].current_language  # the site is built once a language
    made |= {"api.md": API} | write_codes(language)
    for path, text in made.items():
        file = File.generated(config, path, content=text)
        if language != "en":
            file.dest_uri = f"{language}/{file.dest_uri}"
        files.append(file)
    return files


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """The search of pages opened from a disk needs a small script that the theme would fetch: it lies beside them.

    For those who hear the page: its dialog gets the name that the theme leaves out, and so do the sections
    of its navigation; navigations of one name are numbered.
    """
    named = output.replace(
        SEARCH, f'{SEARCH} aria-label="{"搜索" if page.file.dest_uri.startswith("zh/") else "Search"}"'
    )
    named = _number_navigations(SECTION.sub(r'\1 aria-label="\3"\2', named)).replace("</body>", COPYING)
    return named.replace(SHIM, "../" * page.file.dest_uri.count("/") + "site/iframe-worker.js")


def _number_navigations(output: str) -> str:
    """The theme writes a page's contents on both sides of it: the second of a name is told apart from the first."""
    seen: Counter[str] = Counter()

    def numbered(found: re.Match[str]) -> str:
        seen[found[2]] += 1
        return found[0] if seen[found[2]] == 1 else f"{found[1]}{found[2]} ({seen[found[2]]}){found[3]}"

    return NAVIGATION.sub(numbered, output)


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    """The same for the page that stands where no page is."""
    return output_content.replace(SHIM, "/site/iframe-worker.js") if template_name == "404.html" else output_content


def write_codes(language: str) -> dict[str, str]:
    """Path -> Markdown: a page of each code that a finding can have, with a picture of its example, and their table by family."""
    from parityscope.catalogue import families, whole_catalogue
    from parityscope.languages import say_in_language, speak_language

    known = whole_catalogue()
    pictures = {code: draw_code(code, shown, language) for code, shown in shown_codes().items()}
    with speak_language(language):
        pages = {
            f"codes/{entry.code}.md": f"{write_code(entry.code, entry.title, entry.page())}\n{pictures[entry.code]}\n"
            for entry in known.values()
        }
        prints = "Every code that a check, a lint rule or a log can give. `parityscope explain CODE` prints its page."
        columns = " | ".join(map(say_in_language, ("code", "said by", "what")))
        table = [f"# {say_in_language('Codes')}", "", say_in_language(prints), ""]
        for family, entries in families(list(known.values())):
            table += [f"## {say_in_language(family)}", "", f"| {columns} |", "| --- | --- | --- |"]
            table += [
                f"| [{one.code}]({one.code}.md) | {say_in_language(one.said_by)} | {say_in_language(one.title)} |"
                for one in entries
            ]
            table += [""]
    return {**pages, "codes/index.md": "\n".join(table)}


def write_code(code: str, title: str, text: str) -> str:
    """A code's page as `explain` prints it, its sections as headings, in the language that is spoken."""
    from parityscope.catalogue import tell_page
    from parityscope.languages import say_in_language

    body = re.sub(r"^((?:What|How|Sources?|Examples?)[^:\n]{0,40}):\s*", r"## \1\n\n", text, flags=re.MULTILINE)
    return f"# {code} {say_in_language(title)}\n\n{tell_page(body)}\n"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Puts the code of the English page into its translation, and leads links of the repository to pages of this site.

    A link to what is no page becomes its name.
    """
    at = Path(page.file.src_uri)
    if PLACE.search(markdown):
        english = (ROOT / "docs" / at.name.replace(".zh.md", ".md")).read_text(encoding="utf-8")
        blocks = BLOCK.findall(english)
        markdown = PLACE.sub(lambda found: blocks[int(found[1]) - 1], markdown)
    top = at.name in FROM_THE_TOP or at.as_posix() in FROM_THE_TOP
    place = (ROOT / at).parent if top else (ROOT / "docs" / at).parent

    def lead(found: re.Match[str]) -> str:
        image, words, target, anchor = found.groups()
        if re.match(r"[a-z]+:", target):
            return found[0]
        file = (place / target).resolve()
        if not file.is_relative_to(ROOT):
            return found[0]
        inside = file.relative_to(ROOT).as_posix()
        uri = inside.removeprefix("docs/") if inside.startswith("docs/") else inside
        if files.get_file_from_path(uri) is None:
            return found[0] if not file.exists() else (words if image else f"{words} (`{inside}`)")
        depth = "../" * (len(at.parts) - 1)
        return f"{image}[{words}]({depth}{uri}{anchor or ''})"

    return LINK.sub(lead, markdown)
