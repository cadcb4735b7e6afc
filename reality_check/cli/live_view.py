"""The live table of a run: what is trained, the best score so far, and the time left."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from reality_check.cli.columns import name_table
from reality_check.config.metrics import STAGES, Stage
from reality_check.studies.progress import Row, seconds_left, stage_rows, trial_name, worker_states
from reality_check.studies.recorded_experiment import RecordedExperiment
from reality_check.utils.text import duration


def render(recorded: RecordedExperiment, workers: int, started: float) -> Group:
    """Return the live table of a run; ``started`` is its start by ``time.monotonic``."""
    rows = stage_rows(recorded.states())
    left = seconds_left(rows, workers)
    eta = "time left unknown before the first trial"
    if left is not None:
        eta = f"about {duration(round(left))} to go"
    lines = [worker_line(state) for state in worker_states(recorded.out_dir)]
    footer = f"running for {duration(time.monotonic() - started)}, {eta}"
    dimmed = [Text(line, style="dim") for line in lines[:workers]]
    return Group(overview(rows), *dimmed, Text(footer))


def overview(rows: Sequence[Row]) -> Table:
    """Return a table with a row for each method: progress of each stage, and the best score."""
    headings = (*STAGES, "best validation\nscore in %")
    table = name_table("method", *headings, right=headings)
    for name in dict.fromkeys(row.method for row in rows):
        method_rows = [row for row in rows if row.method == name]
        cells = [_progress([row for row in method_rows if row.stage is stage]) for stage in STAGES]
        best = max(
            (row.best for row in method_rows if row.stage is Stage.SEARCH and row.best is not None),
            default=None,
        )
        table.add_row(name, *cells, "" if best is None else f"{100 * best:.1f}")
    return table


def _progress(rows: Sequence[Row]) -> str:
    """Return the progress of a stage over its searches: ``"3 of 50"``, or "-" without any."""
    return f"{sum(r.done for r in rows)} of {sum(r.wanted for r in rows)}" if rows else "-"


def worker_line(state: dict[str, Any]) -> str:
    """Return in words what a worker is doing, by the state that it last wrote."""
    if not state.get("method"):
        return f"  {state.get('doing', 'starting')}"
    line = f"  {state['method']}: {trial_name(state['doing'], state)}"
    if "fold" in state:
        line += f", fold {state['fold'] + 1}, epoch {state.get('epoch', 0)}"
        if state.get("max_epochs"):
            line += f" of at most {state['max_epochs']}"
    return line


class LiveView:
    """Shows the progress of an experiment on a terminal; on other outputs it shows nothing."""

    def __init__(self, console: Console, workers: int) -> None:
        self._console = console
        self._workers = workers
        self._started = time.monotonic()
        self._latest = 0.0  # the time of the latest refresh
        self._live: Live | None = None  # from the first refresh on
        self._stack: contextlib.ExitStack | None = None  # ends the view; None: nothing is shown

    @contextlib.contextmanager
    def shown(self) -> Iterator[LiveView]:
        """Show the view from its first refresh, once the data are read, until the context exits."""
        with contextlib.ExitStack() as stack:
            self._stack = stack if self._console.is_terminal else None
            yield self
        self._live, self._stack = None, None

    def __call__(self, recorded: RecordedExperiment) -> None:
        """Refresh, at most once a second."""
        now = time.monotonic()
        if self._stack is None or now - self._latest < 1.0:
            return
        if self._live is None:
            live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live = self._stack.enter_context(live)
        self._latest = now
        try:
            shown: Group | Text = render(recorded, self._workers, self._started)
        except Exception as error:  # such as a busy storage: the view must not end the run
            shown = Text(f"no news from the storage ({type(error).__name__}); trying again")
        self._live.update(shown, refresh=True)
