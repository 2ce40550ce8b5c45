"""What the verbs found, as records: causes, outputs, tensors, and the report itself.

`document` holds everything, as `--format json` prints it and `study.json` has it (docs/documents.md); what is here are the parts
that programs ask for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from parityscope.api.failing import ParityFailure
from parityscope.errors import EXIT_OF, Exit, ParityError
from parityscope.light_dataclasses import dataclass, fields
from parityscope.report.words import as_number

if TYPE_CHECKING:
    from parityscope.report.forms import Forms

Record_co = TypeVar("Record_co", covariant=True)

_WIDTH = 110  # columns of the first screen where nobody says
_LONG_LINE = 400  # columns: nothing is folded in a repr
_LINE_END = "\n"
_LONG = 120  # characters of that line, chosen
_VERDICTS = {**{code: verdict for verdict, code in EXIT_OF.items()}, Exit.UNUSABLE: "error"}


def exit_of_document(document: Mapping[str, Any]) -> Exit:
    """What a command ends with: beyond, or incomplete where nothing is beyond and something that was asked for was not judged."""
    if document["verdict"] == "within" and any(skip.get("asked") for skip in document["skipped"]):
        return Exit.INCOMPLETE
    return EXIT_OF[document["verdict"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseFound:
    """A finding: `share` of the output error that it explains and `confidence` are in [0, 1], `share` None if not measured.

    `role` is "cause", "contributing" or "information"; `repair` the command or edit that is offered first, "" if none is.
    """

    code: str
    role: str
    title: str
    claim: str
    confidence: float | None
    share: float | None
    node: str
    tensor: str
    repair: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorError:
    """What was measured of a tensor; relative L2 errors, None where they were not measured.

    `introduced` is what its own layer adds, `inherited` what its inputs brought, `grade` the finest arithmetic that explains it.
    """

    name: str
    node: str
    op_type: str
    index: int
    is_output: bool
    verdict: str
    grade: str
    rel_l2: float | None
    max_abs: float | None
    introduced: float | None
    inherited: float | None


class TensorTable(Sequence[TensorError]):
    """The tensors that were compared, outputs first; `to_dataframe()` for pandas."""

    def __init__(self, rows: Sequence[TensorError]) -> None:
        self._rows = tuple(rows)

    @overload
    def __getitem__(self, index: int) -> TensorError: ...
    @overload
    def __getitem__(self, index: slice) -> TensorTable: ...
    def __getitem__(self, index: int | slice) -> TensorError | TensorTable:
        """A row, or some of them as a table."""
        return TensorTable(self._rows[index]) if isinstance(index, slice) else self._rows[index]

    def __len__(self) -> int:
        """How many there are."""
        return len(self._rows)

    def __repr__(self) -> str:
        """How many, and the worst."""
        worst = max(self._rows, key=lambda row: row.rel_l2 or 0.0, default=None)
        return f"<{len(self)} tensors{'' if worst is None else f', the worst {worst.name!r}: {worst.rel_l2}'}>"

    def to_dicts(self) -> list[dict[str, Any]]:
        """A dict a row."""
        return [{field.name: getattr(row, field.name) for field in fields(TensorError)} for row in self._rows]

    def to_dataframe(self) -> Any:  # a pandas.DataFrame, and pandas is nobody's duty here
        """A `pandas.DataFrame`, a row a tensor.

        Raises:
            ParityError: pandas is not installed.
        """
        try:
            import pandas as pd  # type: ignore[import-untyped, import-not-found, unused-ignore] # nobody's duty here
        except ImportError as error:
            fix = "pip install pandas, or take .to_dicts()"
            raise ParityError(f"pandas cannot be imported: {error}", fix=fix) from error
        return pd.DataFrame(self.to_dicts(), columns=[field.name for field in fields(TensorError)])


class _AnyAnswer:
    """What every answer has, whatever it was asked of."""

    __slots__ = ()

    document: Mapping[str, Any]

    @property
    def findings(self) -> tuple[CauseFound, ...]:
        """Causes first, as they are ranked; none where the verb makes none."""
        return tuple(_cause_of_finding(one) for one in self.document.get("findings", ()))

    def to_dict(self) -> dict[str, Any]:
        """The document as plain data, as `--format json` prints it."""
        return dict(self.document)

    def to_html(self) -> str:
        """The report, one page that needs nothing beside it."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """The report in a frame of its own, so that neither its style nor the notebook's disturbs the other."""
        from html import escape

        page = escape(self.to_html(), quote=True)
        return f'<iframe srcdoc="{page}" style="width:100%;height:640px;border:0" title="Parityscope"></iframe>'


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Report(_AnyAnswer, Generic[Record_co]):
    """What a verb gives that makes no study: `record` is what it found, typed, and `document` the same as plain data.

    `exit` is what the command of that name ends with: WITHIN (0), BEYOND (1), UNUSABLE (2) or INCOMPLETE (3). `forms`
    are the forms that the document has. A report that was read again (`load_report`) has no record.
    """

    document: Mapping[str, Any]
    record: Record_co
    forms: Forms
    exit: Exit = Exit.WITHIN

    @property
    def verdict(self) -> str:
        """The document's own, else what `exit` says: "within", "beyond", "error" or "incomplete"."""
        return str(self.document.get("verdict") or _VERDICTS[self.exit])

    def __repr__(self) -> str:
        """What it is, and the first line of the answer."""
        first = " ".join(self.to_text(_LONG_LINE).partition(_LINE_END)[0].split())
        judged = f", {self.document['verdict']}" if self.document.get("verdict") else ""
        return f"<{self.forms.title}{judged}: {first if len(first) <= _LONG else first[:_LONG] + ' ...'}>"

    def __str__(self) -> str:
        """The answer as the command prints it."""
        return self.to_text().rstrip(_LINE_END)

    def to_text(self, width: int = _WIDTH) -> str:
        """The answer as the command prints it, in `width` columns."""
        return self.forms.as_text(self.document, width=width)

    def to_html(self) -> str:
        """The report, one page that needs nothing beside it."""
        return self.forms.as_html(self.document)

    def save(self, place: str | Path) -> Report[Record_co]:
        """Writes a file, by its ending, as `-o` does (.html, .json, .md, .txt), else a folder, as `--study` does; gives itself.

        Raises:
            ParityError: it is there already, cannot be written, or has an ending that says no form of this report.
        """
        from parityscope.api.saving import is_file_name, refuse_file, write_file, write_folder

        path = Path(place)
        if is_file_name(path):
            refuse_file(path)
            write_file(self.forms, self.document, path)
        else:
            write_folder(self.forms, self.document, path)
        return self

    def raise_if_beyond(self) -> None:
        """Fails where the command of that name would not end with 0: something is beyond, worse, lost, broken or not judged.

        Raises:
            ParityFailure: with the answer as its message (an AssertionError).
        """
        if self.exit != Exit.WITHIN:
            raise ParityFailure(str(self))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Result(_AnyAnswer):
    """What `compare`, `localize`, `diagnose`, `evaluate` and `load_study` give; `folder` is where it lies, None for nowhere."""

    document: Mapping[str, Any]
    folder: Path | None = None

    @property
    def verdict(self) -> str:
        """One of "within", "beyond" and "incomplete"."""
        return str(self.document["verdict"])

    @property
    def exit(self) -> Exit:
        """What the command ends with: 0 within, 1 beyond, 3 where something that was asked for was not judged."""
        return exit_of_document(self.document)

    @property
    def outputs(self) -> TensorTable:
        """The outputs that were compared."""
        return TensorTable([_row_of_tensor(one, is_output=True) for one in self.document.get("outputs", ())])

    @property
    def tensors(self) -> TensorTable:
        """The outputs, then every other tensor that was compared, in the order of the graph."""
        return TensorTable([*self.outputs, *self._inside()])

    def _inside(self) -> list[TensorError]:
        held = self.document.get("tensors", ())
        return [_row_of_tensor(one, is_output=False) for one in held if not one.get("is_output")]

    def __repr__(self) -> str:
        """The first line of the answer."""
        return f"<{type(self).__name__} {self.verdict}: {self.first_screen(_LONG_LINE).splitlines()[0]}>"

    def __str__(self) -> str:
        """The first screen."""
        return self.first_screen()

    def first_screen(self, width: int = _WIDTH) -> str:
        """The answer in at most some fifteen lines of `width` columns."""
        from parityscope.report.as_text import plain_first_screen

        return plain_first_screen(self._document_from_here(), width)

    def to_html(self) -> str:
        """The report, one page that needs nothing beside it."""
        from parityscope.report import renderer_named

        return renderer_named("html").render(self._document_from_here())

    def _document_from_here(self) -> Mapping[str, Any]:
        from parityscope.study import name_files_from_here

        return self.document if self.folder is None else name_files_from_here(self.document, self.folder)

    def save(self, place: str | Path) -> Result:
        """Writes a file, by its ending, as `-o` does, else a new folder with `study.json` and `report.html`.

        Gives the result with that folder. Endings: .html, .json, .md, .xml (JUnit), .sarif, .txt.

        Raises:
            ParityError: it is there already, or cannot be written.
        """
        from parityscope.api.saving import is_file_name, refuse_file, write_study_file
        from parityscope.report.as_html import render_html
        from parityscope.study import prepare_folder, write_study

        path = Path(place)
        if is_file_name(path):
            refuse_file(path)
            write_study_file(self._document_from_here(), path)
            return self
        with prepare_folder(path) as scratch:
            write_study(scratch, self.document, render_html)
        return Result(document=self.document, folder=path)

    def raise_if_beyond(self) -> None:
        """Fails where an output differs by more than its arithmetic or the policy allows, or something was not judged.

        Raises:
            ParityFailure: with the first screen as its message (an AssertionError), and this as its `result`.
        """
        if self.exit != Exit.WITHIN:
            failure = ParityFailure(self.first_screen())
            failure.result = self
            raise failure


def _cause_of_finding(finding: Mapping[str, Any]) -> CauseFound:
    site = finding.get("site") or {}
    offered: Mapping[str, Any] = next(iter(finding.get("repairs") or ()), {})
    return CauseFound(
        code=str(finding.get("code", "")),
        role=str(finding.get("role", "")),
        title=str(finding.get("title", "")),
        claim=str(finding.get("claim", "")),
        confidence=as_number(finding.get("confidence")),
        share=as_number(finding.get("share")),
        node=str(site.get("node") or ""),
        tensor=str(site.get("tensor") or ""),
        repair=str(offered.get("command") or offered.get("text") or ""),
    )


def _row_of_tensor(held: Mapping[str, Any], *, is_output: bool) -> TensorError:
    return TensorError(
        name=str(held.get("name", "")),
        node=str(held.get("node") or ""),
        op_type=str(held.get("op_type") or ""),
        index=int(held.get("index", -1)),
        is_output=is_output,
        verdict=str(held.get("verdict") or ""),
        grade=str(held.get("grade") or ""),
        rel_l2=as_number(held.get("rel_l2")),
        max_abs=as_number(held.get("max_abs")),
        introduced=as_number(held.get("introduced")),
        inherited=as_number(held.get("inherited")),
    )
