"""The application of `glidemq top`: a table with a header, a command line at the bottom, and dialogs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, Final, cast

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import DataTable, Input, Static
from typing_extensions import override

from glidemq_async._internal.control_characters import escape
from glidemq_async.errors import GlideMQError
from glidemq_async.tui.changes import JobChange, PauseChange
from glidemq_async.tui.dialogs import HelpDialog, PreviewDialog
from glidemq_async.tui.source import FailureLine, JobAction, JobLine, QueueLine, Reading, TopSource, ago, span
from glidemq_async.tui.views import Tab, TableView, fits, parse_command

_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "queues": ("queue", "", "waiting", "oldest", "active", "delayed", "failed", "a second", "workers"),
    "jobs": ("", "id", "queue", "name", "state", "tries", "age", "reason"),
    "failures": ("error", "failed", "24 h", "last", "name", "queue", "began with", "place", "message"),
    "workers": ("worker", "queue", "running", "started", "seen", "host", "pid"),
    "schedulers": ("id", "queue", "job", "when", "", "next", "last", "fired"),
    "audit": ("age", "by", "action", "queue", "target", "count", "reason", "result"),
}
_WIDTHS: Final = {
    "error": 18,
    "place": 40,
    "message": 60,
    "id": 12,
    "queue": 16,
    "name": 14,
    "reason": 60,
    "worker": 24,
    "target": 20,
    "by": 20,
    "result": 40,
}
"""Maximum number of columns of the terminal for texts that can be long."""
_STYLES: Final = {
    "failed": "red",
    "failing": "white on red",
    "stopped": "bold white on red",
    "lost": "bold white on red",
    "behind": "black on yellow",
    "active": "green",
    "ok": "black on green",
    "completed": "dim",
    "delayed": "blue",
    "paused": "yellow",
}
_MARK: Final = "*"
_CHANGES: Final = "r run again  c cancel  s start  x delete  p pause  ? help"


class Top(App[None]):
    """The queues of a prefix in a terminal. It reads only, until the user permits changes with `w`."""

    CSS: ClassVar[str] = """
    #verdict, #path, #keys { height: 1; width: 100%; }
    #path { color: $text-muted; padding: 0 1; }
    #keys { dock: bottom; color: $text-muted; }
    #prompt { dock: bottom; height: 1; border: none; padding: 0; display: none; }
    #table { height: 1fr; scrollbar-size-horizontal: 0; }
    #page { height: 1fr; display: none; }
    PreviewDialog, HelpDialog { align: center middle; }
    #dialog { width: 76; max-width: 96%; height: auto; max-height: 90%; border: round $accent; padding: 0 1; }
    #dialog-title { text-style: bold; }
    #dialog-lines, #dialog-keys { height: auto; margin-top: 1; }
    #reason { height: 1; border: none; margin-top: 1; }
    """
    ENABLE_COMMAND_PALETTE: ClassVar[bool] = True
    COMMAND_PALETTE_BINDING: ClassVar[str] = "ctrl+k"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back", show=False),
        ("colon", "ask(':')", "Command"),
        ("slash", "ask('/')", "Filter"),
        ("space", "mark", "Mark"),
        ("d", "show_job('details')", "Details"),
        ("l", "show_job('log')", "Log"),
        ("e", "show_job('explanation')", "Explain"),
        ("u", "reload", "Update"),
        ("w", "toggle_changes", "Permit changes"),
        ("r", "change('retry')", "Run again"),
        ("c", "change('cancel')", "Cancel"),
        ("s", "change('promote')", "Start now"),
        ("x", "change('delete')", "Delete"),
        ("p", "pause", "Pause"),
        ("question_mark", "help", "Help"),
        ("q", "quit", "Quit"),
    ]

    def __init__(self, source: TopSource) -> None:
        super().__init__()
        # A slow connection must not carry frames that only move something.
        self.animation_level = "none"
        self.title = "glidemq top"
        self.source = source
        """The source of the data of the view, and of its changes."""
        self._views = [TableView()]
        self._reading = Reading(())
        self._jobs: dict[str, JobLine] = {}
        self._failures: dict[str, FailureLine] = {}
        self._marked: set[str] = set()
        self._permits_changes = False

    @property
    def view(self) -> TableView:
        """The view that is shown."""
        return self._views[-1]

    @override
    def compose(self) -> ComposeResult:
        yield Static(id="verdict")
        yield Static(id="path")
        yield DataTable[Text](id="table", cursor_type="row", zebra_stripes=False)
        with VerticalScroll(id="page"):
            yield Static(id="text")
        prompt = Input(id="prompt", compact=True)
        prompt.cursor_blink = False
        yield prompt
        yield Static(id="keys")

    def on_mount(self) -> None:
        """Show the queues, and begin to read them."""
        self._show_frame()
        self._table.focus()
        self._read_queues()

    @property
    def _table(self) -> DataTable[Text]:
        return cast("DataTable[Text]", self.query_one("#table", DataTable))

    # -- reading --------------------------------------------------------------------------------------------------

    @work(exclusive=True, group="readings")
    async def _read_queues(self) -> None:
        async for reading in self.source.readings():
            is_other = reading != self._reading
            self._reading = reading
            if is_other:
                self._show_verdict()
            if is_other and self.view.kind == "queues" and self.view.job_id is None:
                self._fill(_queue_rows(reading.queues))

    @work(exclusive=True, group="rows")
    async def _load(self) -> None:
        view = self.view
        try:
            if view.job_id is not None and view.queue is not None:
                await self._load_page(view, view.queue, view.job_id)
            elif view.kind == "queues":
                self._fill(_queue_rows(self._reading.queues))
            elif view.kind == "jobs":
                jobs = await self.source.jobs(view.queue, view.wanted)
                self._jobs = {f"{one.queue}/{one.id}": one for one in jobs}
                self._marked &= self._jobs.keys()
                self._fill([(key, self._job_cells(key, one)) for key, one in self._jobs.items()])
            elif view.kind == "failures":
                self._failures = {f"{one.queue}/{one.wanted}": one for one in await self.source.failures(view.queue)}
                self._fill([(key, one.cells) for key, one in self._failures.items()])
            else:
                rows = await self._rows_of(view)
                self._fill([(str(number), row) for number, row in enumerate(rows)])
        except (GlideMQError, LookupError) as error:
            self._tell(str(error), failed=True)

    async def _rows_of(self, view: TableView) -> list[list[object]]:
        if view.kind == "workers":
            return await self.source.workers(view.queue)
        return await (self.source.schedulers(view.queue) if view.kind == "schedulers" else self.source.audit())

    async def _load_page(self, view: TableView, queue: str, job_id: str) -> None:
        readers: dict[Tab, Callable[[str, str], Awaitable[str]]] = {
            "details": self.source.describe,
            "log": self.source.log,
            "explanation": self.source.explain,
        }
        text = await readers[view.tab](queue, job_id)
        if view == self.view:
            self.query_one("#text", Static).update(Text(escape(text, keep="\n")))

    # -- showing --------------------------------------------------------------------------------------------------

    def _show(self, view: TableView | None = None) -> None:
        """Show a further view, or the present one after a change of the list of views."""
        if view is not None:
            self._views.append(view)
        self._marked.clear()
        self._show_frame()
        self._load()

    def _show_frame(self) -> None:
        is_page = self.view.job_id is not None
        self._table.display = not is_page
        page = self.query_one("#page")
        page.display = is_page
        (page if is_page else self._table).focus()
        if is_page:
            self.query_one("#text", Static).update("")
        else:
            self._table.clear(columns=True)
            for number, heading in enumerate(_COLUMNS[self.view.kind]):
                self._table.add_column(heading, key=str(number))
        path = " > ".join(each.title for each in self._views)
        self.query_one("#path", Static).update(Text(escape(path), overflow="ellipsis", no_wrap=True))
        self._show_verdict()

    def _show_verdict(self) -> None:
        word, sentence = self._reading.verdict, self._reading.sentence
        # Before the sentence: a narrow terminal cuts off the end of the line.
        mode = (" changes permitted  ", "bold red") if self._permits_changes else (" read only  ", "dim")
        line = Text.assemble((f" {word} ", _STYLES[word]), mode, escape(sentence), overflow="ellipsis", no_wrap=True)
        self.query_one("#verdict", Static).update(line)
        first = "" if self._permits_changes else " enter open  esc back "
        last = _CHANGES if self._permits_changes else "w permit changes  ? help  q quit"
        keys = f"{first} : command  / filter  {last}"
        self.query_one("#keys", Static).update(Text(keys, no_wrap=True))

    def _fill(self, rows: Sequence[tuple[str, Sequence[object]]]) -> None:
        """Show rows, and change only the cells that differ, so that a slow connection carries little."""
        table, headings = self._table, _COLUMNS[self.view.kind]
        is_searched = self.view.kind != "jobs" and self.view.wanted
        shown = {key: cells for key, cells in rows if not is_searched or fits(cells, self.view.wanted)}
        if list(shown) == [str(key.value) for key in table.rows]:
            for key, cells in shown.items():
                for number, cell in enumerate(cells):
                    text = _cell(headings[number], cell)
                    if table.get_cell(key, str(number)) != text:
                        table.update_cell(key, str(number), text)
            return
        selected = self._selected()
        table.clear()
        for key, cells in shown.items():
            table.add_row(*(_cell(headings[number], cell) for number, cell in enumerate(cells)), key=key)
        if selected in shown:
            table.move_cursor(row=table.get_row_index(selected))

    def _job_cells(self, key: str, job: JobLine) -> list[object]:
        mark = _MARK if key in self._marked else ""
        return [mark, job.id, job.queue, job.name, job.state, job.attempts, ago(job.created_at), job.reason]

    def _selected(self) -> str:
        table = self._table
        if not table.row_count:
            return ""
        return str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value)

    def _tell(self, message: str, *, failed: bool = False) -> None:
        self.notify(escape(message), markup=False, severity="error" if failed else "information", timeout=6)

    # -- keys -----------------------------------------------------------------------------------------------------

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the row."""
        key = str(event.row_key.value)
        if self.view.kind == "queues":
            self._show(TableView("jobs", queue=key))
        elif self.view.kind == "failures" and key in self._failures:
            found = self._failures[key]
            self._show(TableView("jobs", found.queue, f"state:failed {found.wanted}"))
        elif self.view.kind == "jobs":
            self.action_show_job("details")

    def action_leave(self) -> None:
        """Leave the prompt or the view."""
        prompt = self.query_one("#prompt", Input)
        if prompt.display:
            self._close_prompt()
        elif len(self._views) > 1:
            self._views.pop()
            self._show()

    def action_ask(self, sign: str) -> None:
        """Ask for a command or a filter."""
        prompt = self.query_one("#prompt", Input)
        prompt.value = sign + (self.view.wanted if sign == "/" else "")
        prompt.display = True
        prompt.focus()
        prompt.cursor_position = len(prompt.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Run the command, or filter the rows."""
        if event.input.id != "prompt":
            return
        text = event.value
        self._close_prompt()
        try:
            if text.startswith(":"):
                view = parse_command(text)
                self._views = [TableView()] if view.kind == "queues" else [TableView(), view]
                self._views[-1] = view
            else:
                self._set_filter(text.removeprefix("/").strip())
        except (GlideMQError, ValueError) as error:
            self._tell(str(error), failed=True)
            return
        self._show()

    def _set_filter(self, wanted: str) -> None:
        view = self.view
        if view.kind == "jobs":
            parse_command(f"jobs {wanted}")
        self._views[-1] = TableView(view.kind, view.queue, wanted)

    def _close_prompt(self) -> None:
        self.query_one("#prompt", Input).display = False
        self._table.focus()

    def action_reload(self) -> None:
        """Read the rows again."""
        self._load()

    def action_show_job(self, tab: Tab) -> None:
        """Show a text about the selected job."""
        if self.view.job_id is not None and self.view.queue is not None:
            self._views[-1] = self.view.of_job(self.view.queue, self.view.job_id, tab)
            self._show()
        elif (job := self._jobs.get(self._selected())) is not None and self.view.kind == "jobs":
            self._show(self.view.of_job(job.queue, job.id, tab))

    def action_mark(self) -> None:
        """Mark the selected job for the next change, or take the mark away."""
        key = self._selected()
        if self.view.kind == "jobs" and key in self._jobs:
            self._marked ^= {key}
            self._table.update_cell(key, "0", _cell("", _MARK if key in self._marked else ""))
            self._table.action_cursor_down()

    def action_toggle_changes(self) -> None:
        """Permit changes, or forbid them again."""
        self._permits_changes = not self._permits_changes
        self._show_verdict()

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(HelpDialog())

    # -- changes --------------------------------------------------------------------------------------------------

    def action_change(self, action: JobAction) -> None:
        """Preview a change of the marked jobs, or of the selected one."""
        chosen = [self._jobs[key] for key in self._jobs if key in self._marked]
        selected = self._jobs.get(self._selected())
        jobs = chosen or ([selected] if selected is not None else [])
        if self.view.kind == "jobs" and jobs:
            self._preview(JobChange.of(action, jobs))

    def action_pause(self) -> None:
        """Preview the pause of the selected queue, or its end."""
        name = self.view.queue or (self._selected() if self.view.kind == "queues" else "")
        line = next((one for one in self._reading.queues if one.name == name), None)
        if line is not None:
            self._preview(PauseChange(name, line.paused, line.waiting))

    def _preview(self, change: JobChange | PauseChange) -> None:
        if not self._permits_changes:
            self._tell("this view only reads; press w to permit changes", failed=True)
            return

        def decided(reason: str | None) -> None:
            if reason is not None:
                self._make(change, reason)

        self.push_screen(PreviewDialog(change), decided)

    @work(group="changes")
    async def _make(self, change: JobChange | PauseChange, reason: str) -> None:
        try:
            self._tell(await change.make(self.source, reason))
        except (GlideMQError, LookupError, ValueError) as error:
            self._tell(str(error), failed=True)
        self._marked.clear()
        self._load()


def _queue_rows(queues: Sequence[QueueLine]) -> list[tuple[str, list[object]]]:
    rows: list[tuple[str, list[object]]] = []
    for one in queues:
        counts: dict[str, Any] = one.counts
        state = "paused" if one.paused else ""
        oldest = "" if one.oldest_seconds is None else span(one.oldest_seconds)
        numbers = [counts[state] or "" for state in ("active", "delayed", "failed")]
        rate = f"{one.out_rate:.1f}" if one.out_rate else ""
        rows.append((one.name, [one.name, state, one.waiting or "", oldest, *numbers, rate, one.workers]))
    return rows


def _cell(heading: str, value: object) -> Text:
    shown = "" if value is None else f"{value:,}" if isinstance(value, int) else escape(str(value))
    text = Text(shown, style=_STYLES.get(shown, ""), justify="right" if isinstance(value, int) else "left")
    text.truncate(_WIDTHS.get(heading, 40), overflow="ellipsis")
    return text
