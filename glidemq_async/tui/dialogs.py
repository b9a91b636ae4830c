"""The dialogs of the terminal view: the preview of a change, and the help."""

from __future__ import annotations

from typing import ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static
from typing_extensions import override

from glidemq_async._internal.control_characters import escape
from glidemq_async.tui.changes import JobChange, PauseChange

HELP: Final = """\
 enter   open the row            esc     back
 :       command: queues, jobs state:failed, failures, workers, schedulers, audit
 /       filter the rows         space   mark the job
 d       details of the job      l       its log
 e       why it does not run     u       read again now
 w       permit changes, or forbid them again
 r       run again (failed)      c       cancel
 s       start now (delayed)     x       delete
 p       pause or resume the queue
 ctrl+k  palette                 q       quit

Every change shows a preview first, asks for a reason, and writes an audit line."""


class PreviewDialog(ModalScreen[str | None]):
    """Shows what a change will do. Returns the reason, or None if the user has declined."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "decline", "No")]

    def __init__(self, change: JobChange | PauseChange) -> None:
        super().__init__()
        self._change = change

    @override
    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Static(Text(escape(self._change.title)), id="dialog-title")
            yield Static(Text("\n".join(escape(line) for line in self._change.lines)), id="dialog-lines")
            reason = Input(placeholder="reason", id="reason", disabled=self._change.is_empty)
            reason.cursor_blink = False
            yield reason
            hint = "esc  back" if self._change.is_empty else "enter  do it     esc  do nothing"
            yield Static(hint, id="dialog-keys")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Return the reason."""
        self.dismiss(event.value.strip())

    def action_decline(self) -> None:
        """Change nothing."""
        self.dismiss(None)


class HelpDialog(ModalScreen[None]):
    """Lists the keys."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,q,question_mark,enter", "dismiss_help", "Back")]

    @override
    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Static(Text(HELP))

    def action_dismiss_help(self) -> None:
        """Close the help."""
        self.dismiss(None)
