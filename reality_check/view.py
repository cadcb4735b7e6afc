"""What a campaign is doing, as one live table: what runs, the best so far, and when it ends."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from reality_check.campaign import Campaign
from reality_check.processes import is_alive
from reality_check.results import STAGES
from reality_check.search import Stage, best_trial

#: Seconds after which a worker of another machine that says nothing is taken to be gone.
_SILENT = 3600.0
#: What one unit of work of a stage is called.
UNIT_NAMES = {
    "search": "trial",
    "reproductions": "reproduction",
    "complete": "complete run",
    "baselines": "baselines",
}


@dataclass(frozen=True)
class Row:
    """One stage of one method: how many of its units are complete."""

    method: str
    stage: str
    done: int
    wanted: int
    best: float | None
    seconds: float | None  # mean of the complete units


def stage_rows(campaign: Campaign) -> list[Row]:
    """The state of every stage of every method, from the storage."""
    ready = {(unit.method, unit.stage): unit.study for unit in campaign.units()}
    protocol = campaign.experiment.protocol
    rows = []
    for method in campaign.experiment.methods:
        stages = campaign.stages_of(method)
        for stage in (stage for stage in STAGES if stage in stages):
            wanted = protocol.search.trials if stage == "search" else protocol.reproductions
            rows.append(_row(method.name, stage, wanted, ready.get((method.name, stage))))
    return rows


def _row(method: str, stage: str, wanted: int, study: Stage | None) -> Row:
    if study is None:
        return Row(method, stage, 0, wanted, None, None)
    complete = study.complete()
    seconds = [t.user_attrs["seconds"] for t in complete.values() if "seconds" in t.user_attrs]
    best = best_trial(study)
    return Row(
        method,
        stage,
        len(complete),
        wanted,
        None if best is None else best.value,
        fmean(seconds) if seconds else None,
    )


def seconds_left(rows: Sequence[Row], workers: int) -> float | None:
    """A guess of the time to the end; ``None`` before the first unit is complete."""
    known = {row.stage: row.seconds for row in rows if row.seconds is not None}
    if not known:
        return None
    search = known.get("search") or max(known.values())
    guess = {"search": search, "reproductions": search, "complete": search / 2}
    total = sum(
        (row.wanted - row.done) * (row.seconds or known.get(row.stage) or guess[row.stage])
        for row in rows
    )
    return total / max(workers, 1)


def worker_states(out_dir: Path) -> list[dict[str, Any]]:
    """What every worker that is still there said last."""
    states = []
    for file in sorted((out_dir / "logs").glob("worker_*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError):
            state = json.loads(file.read_text(encoding="utf-8"))
            if is_alive(state["worker"]) and time.time() - state["time"] < _SILENT:
                states.append(state)
    return states


def render(campaign: Campaign, workers: int, started: float) -> Group:
    """The live table."""
    rows = stage_rows(campaign)
    left = seconds_left(rows, workers)
    eta = (
        "end not known before the first trial" if left is None else f"about {duration(left)} to go"
    )
    lines = [worker_line(state) for state in worker_states(campaign.out_dir)]
    footer = f"running for {duration(time.monotonic() - started)}, {eta}"
    return Group(
        overview(rows), *[Text(line, style="dim") for line in lines[:workers]], Text(footer)
    )


def overview(rows: Sequence[Row]) -> Table:
    """One line a method: how far each stage is, and the best trial so far."""
    table = Table(box=None, pad_edge=False)
    table.add_column("method", overflow="fold")
    for stage in STAGES:
        table.add_column(stage, justify="right", no_wrap=True)
    table.add_column("best validation\nMAP@R in %", justify="right", no_wrap=True)
    for name in dict.fromkeys(row.method for row in rows):
        own = {row.stage: row for row in rows if row.method == name}
        cells = [
            f"{own[stage].done} of {own[stage].wanted}" if stage in own else "-" for stage in STAGES
        ]
        best = own["search"].best if "search" in own else None
        table.add_row(name, *cells, "" if best is None else f"{100 * best:.1f}")
    return table


def worker_line(state: dict[str, Any]) -> str:
    """What a worker does, in words."""
    if not state.get("method"):
        return f"  {state.get('doing', 'starting')}"
    line = f"  {state['method']}: {UNIT_NAMES[state['doing']]} {state['slot'] + 1}"
    if "fold" in state:
        line += f", fold {state['fold'] + 1}, epoch {state.get('epoch', 0)}"
        if state.get("max_epochs"):
            line += f" of at most {state['max_epochs']}"
    return line


def duration(seconds: float) -> str:
    """Seconds as people say them: ``42 s``, ``3 min``, ``2 h 5 min``."""
    minutes = int(seconds // 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    if minutes < 10:
        return f"{minutes} min {int(seconds % 60)} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


class LiveView:
    """Shows a campaign on a terminal; says nothing when the output is not one."""

    def __init__(self, console: Console, workers: int) -> None:
        self._console = console
        self._workers = workers
        self._started = time.monotonic()
        self._latest = 0.0
        self._live: Live | None = None
        self._stack: contextlib.ExitStack | None = None

    @contextlib.contextmanager
    def shown(self) -> Iterator[LiveView]:
        """Show the view from its first refresh, after data are read, until the end of the block."""
        with contextlib.ExitStack() as stack:
            self._stack = stack if self._console.is_terminal else None
            yield self
        self._live, self._stack = None, None

    def __call__(self, campaign: Campaign) -> None:
        """Refresh, at most once a second."""
        now = time.monotonic()
        if self._stack is None or now - self._latest < 1.0:
            return
        if self._live is None:
            live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live = self._stack.enter_context(live)
        self._latest = now
        try:
            shown: Group | Text = render(campaign, self._workers, self._started)
        except Exception as error:  # a busy storage, say: looking on must not end the work
            shown = Text(f"no news from the storage ({type(error).__name__}); trying again")
        self._live.update(shown, refresh=True)
