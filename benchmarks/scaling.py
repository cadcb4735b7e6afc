"""What more workers bring, what the harness costs beside training, and what a storage bears.

    python benchmarks/scaling.py                                  # all parts, some minutes
    python benchmarks/scaling.py --parts experiment --rounds 3
    python benchmarks/scaling.py --parts simulation --storages postgresql --workers 64 --seconds 20

Parts:

- experiment: one real experiment on the embedded glyphs by ``reality-check run`` with 1 and with 2
  workers in turns, each in a fresh folder. No early stop and a random search, so all runs do the
  same work; that their results are equal is checked.
- trial: where the time of one worker goes, from a small real experiment.
- storage: what a trial costs when its training takes no time: one worker, each storage.
- simulation: the searches of many methods, by workers whose trainings sleep. All else is real: the
  worker's loop, claims, results, heartbeats, notes of progress. They are forked from one process
  that has imported everything, and all begin at the same moment. Workers and server share this
  machine, which makes the storage slower than where each has a machine of its own.

PostgreSQL and MariaDB are started for this from the system's packages with their own defaults, and
stopped afterwards; those that are not installed are left out. The tables are Markdown.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import importlib.util
import itertools
import json
import math
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, Literal

import sqlalchemy
import torch
from optuna.storages import BaseStorage

from reality_check.config import Experiment, compose
from reality_check.config.metrics import Stage
from reality_check.config.yaml_text import dump_yaml
from reality_check.data import load_dataset
from reality_check.launch import work_loop as loop_room
from reality_check.launch import worker as worker_room
from reality_check.launch.check import check
from reality_check.launch.open_folder import open_folder
from reality_check.launch.scorer import Scorer
from reality_check.launch.trial_runner import TrialRunner
from reality_check.launch.work_loop import WorkLoop
from reality_check.studies import recorded_experiment as recorded_room
from reality_check.studies.output_folder import load_locked
from reality_check.studies.patient_storage import PatientStorage, _RepeatedDatabase
from reality_check.studies.plan import StudyState
from reality_check.studies.recorded_experiment import RecordedExperiment
from reality_check.studies.trial import TrialContext, TrialResult
from reality_check.training import prepared_experiment as prepared_room
from reality_check.training.records import FoldRecords
from reality_check.training.trainer import Trainer
from reality_check.utils import checkpoints
from reality_check.utils.passwords import lent_password
from reality_check.utils.processes import die_with_parent
from reality_check.utils.seeds import derive

#: Of the real experiment: those of the quickstart.
METHODS = ("normalized_softmax", "contrastive", "stop_gradient_softmax", "warped_softmax")
STORAGES = ("sqlite", "postgresql", "mariadb")
#: The most workers that are tried on a storage.
MOST_WORKERS = {"sqlite": 8}
#: Evaluations of a pretended training: its curves in the storage are so long.
EVALUATIONS = 30
#: Seconds of a real training that the storage's share is computed for.
LONG = 600.0
#: Of the first column of a table, and of the others at least.
_NAME_WIDTH, _VALUE_WIDTH = 17, 8
#: After the label of what another thread did, which the worker does not wait for.
ELSEWHERE = ", other threads"


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and print the tables of each part."""
    parts = {
        "experiment": experiment_part,
        "trial": trial_part,
        "storage": storage_part,
        "simulation": simulation_part,
    }
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=list(parts), default=list(parts))
    real = parser.add_argument_group("experiment and trial")
    real.add_argument("--rounds", type=size, default=1, help="of 1 and 2 workers in turns")
    real.add_argument("--methods", type=int, choices=range(1, len(METHODS) + 1), default=2)
    real.add_argument("--trials", type=size, default=6)
    real.add_argument("--reproductions", type=size, default=4)
    real.add_argument("--epochs", type=size, default=8)
    pretended = parser.add_argument_group("storage and simulation")
    pretended.add_argument("--storages", nargs="+", choices=STORAGES, default=STORAGES)
    pretended.add_argument("--studies", type=size, default=14, help="methods of the experiment")
    pretended.add_argument("--each", type=size, default=14, help="mean number of a worker's trials")
    pretended.add_argument("--workers", nargs="+", type=size, default=[1, 8, 64])
    pretended.add_argument("--seconds", nargs="+", type=float, default=[2.0], help="of a training")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that servers are stopped
    torch.set_num_threads(1)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}")
    for part in options.parts:
        print(f"\n{part}\n", flush=True)
        parts[part](options)


def size(text: str) -> int:
    """A number that is at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Markdown with aligned columns, each row as soon as it is there."""
    widths = [_NAME_WIDTH, *(max(len(title), _VALUE_WIDTH) for title in header[1:])]
    ruler = ["-" * (widths[0]), *("-" * (width - 1) + ":" for width in widths[1:])]
    for line in itertools.chain((header, ruler), rows):
        cells = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
        print("| " + " | ".join([line[0].ljust(widths[0]), *cells[1:]]) + " |", flush=True)


# -- one real experiment -------------------------------------------------------------------------


def real_experiment(options: argparse.Namespace) -> dict[str, Any]:
    """The quick protocol without what makes two runs differ in their work."""
    return {
        "name": "scaling",
        "dataset": "glyphs",
        "model": "conv4",
        "protocol": {
            "base": "quick_one_search",
            "training": {"max_epochs": options.epochs, "patience": None},
            "search": {"trials": options.trials, "sampler": "random"},
            "reproductions": options.reproductions,
        },
        "methods": [f"quick/{name}" for name in METHODS[: options.methods]],
        "device": "cpu",
    }


@dataclass(frozen=True)
class Timeline:
    """One run: seconds from its start to its end, and what happened meanwhile."""

    workers: int
    wall: float
    before: float  # until the first trial was claimed
    after: float  # from the end of the last trial
    busy: float  # sum over all trials
    trial: float  # median of the search trials
    results: str  # results.csv

    @property
    def idle(self) -> float:
        """Seconds that a worker was between trials, or had none, in the mean."""
        return self.wall - self.before - self.after - self.busy / self.workers


def experiment_part(options: argparse.Namespace) -> None:
    """Wall time of an experiment with 1 and 2 workers."""
    plain = real_experiment(options)
    load_dataset(compose(plain).dataset)  # drawn once and kept
    runs: list[Timeline] = []
    for number in range(options.rounds):
        order = (1, 2) if number % 2 == 0 else (2, 1)
        runs += [timed_run(plain, workers) for workers in order]
    header = ["workers", "wall time", "start", "trials", "without work", "report", "search trial"]
    rows = [
        [
            str(run.workers),
            *(f"{value:.1f} s" for value in (run.wall, run.before)),
            f"{run.busy / run.workers:.1f} s",
            *(f"{value:.1f} s" for value in (run.idle, run.after)),
            f"{run.trial:.2f} s",
        ]
        for run in runs
    ]
    print_table(header, rows)
    one, two = ([run for run in runs if run.workers == workers] for workers in (1, 2))
    walls = [fmean(run.wall for run in own) for own in (one, two)]
    busy = [fmean(run.busy for run in own) for own in (one, two)]
    equal = len({run.results for run in runs}) == 1
    print(f"\n2 workers are {walls[0] / walls[1]:.2f} times as fast as 1 (target: 1.80)")
    print(f"side by side, the same trials take {busy[1] / busy[0]:.2f} times as long: the machine")
    print(f"results.csv of all runs is {'the same' if equal else 'NOT THE SAME'}")


def timed_run(plain: dict[str, Any], workers: int) -> Timeline:
    """Run it in a folder of its own, as a user does."""
    with tempfile.TemporaryDirectory(prefix="scaling-") as name:
        folder = Path(name)
        (folder / "scaling.yaml").write_text(dump_yaml(plain))
        command = [
            sys.executable,
            "-m",
            "reality_check",
            "run",
            "scaling.yaml",
            "--out",
            "out",
        ]
        began = time.time()
        done = subprocess.run(
            [*command, "--workers", str(workers)], cwd=folder, capture_output=True, text=True
        )
        ended = time.time()
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        return timeline(folder / "out", workers, began, ended)


def timeline(out: Path, workers: int, began: float, ended: float) -> Timeline:
    """Read what happened from the storage."""
    recorded = RecordedExperiment(load_locked(out), out)
    stages = {(u.method, u.stage): u.complete.values() for u in recorded.states().ready()}
    times = {
        key: [(t.started.timestamp(), t.ended.timestamp()) for t in trials]
        for key, trials in stages.items()
    }
    spans = list(itertools.chain.from_iterable(times.values()))
    search = [e - b for (_, stage), own in times.items() if stage == "search" for b, e in own]
    return Timeline(
        workers=workers,
        wall=ended - began,
        before=min(begin for begin, _ in spans) - began,
        after=ended - max(end for _, end in spans),
        busy=sum(end - begin for begin, end in spans),
        trial=median(search),
        results=(out / "results.csv").read_text(),
    )


# -- where time goes -----------------------------------------------------------------------------


class Clock:
    """Divides the time of the thread that made it among labels; each second has one label.

    Calls of other threads (heartbeats) are counted apart and not among the seconds.
    """

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self._thread = threading.get_ident()
        self._others = threading.local()
        self._label, self._since = "rest", time.perf_counter()

    @contextlib.contextmanager
    def of(self, label: str) -> Iterator[None]:
        """What happens in this block has this label, but for inner blocks."""
        if threading.get_ident() != self._thread:
            with self._of_other_thread(f"{label}{ELSEWHERE}"):
                yield
            return
        outer = self._label
        self.calls[label] += outer != label
        self._switch(label)
        try:
            yield
        finally:
            self._switch(outer)

    @contextlib.contextmanager
    def _of_other_thread(self, label: str) -> Iterator[None]:
        if vars(self._others).get("inside"):  # the outer block has it
            yield
            return
        self._others.inside, started = True, time.perf_counter()
        try:
            yield
        finally:
            self._others.inside = False
            self.seconds[label] += time.perf_counter() - started
            self.calls[label] += 1

    def stop(self) -> None:
        """Count the seconds up to now."""
        self._switch(self._label)

    def _switch(self, label: str) -> None:
        now = time.perf_counter()
        self.seconds[self._label] += now - self._since
        self._label, self._since = label, now

    def wrap(self, owner: Any, name: str, label: str) -> None:
        """Give the time of a function or method this label."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def timed(*arguments: Any, **keywords: Any) -> Any:
            with self.of(label):
                return original(*arguments, **keywords)

        setattr(owner, name, timed)

    def wrap_storage(self) -> None:
        """All that a worker asks of its storage."""
        public = [name for name in vars(BaseStorage) if re.match(r"(create|delete|get|set)_", name)]
        for name in {*public, "record_heartbeat"} - {"set_trial_param"}:
            self.wrap(PatientStorage, name, "storage")
        # Parameters only wait in set_trial_param for this.
        self.wrap(_RepeatedDatabase, "write_together", "storage")
        self.wrap(recorded_room, "open_storage", "opening")
        self.wrap(loop_room, "pause", "waiting")

    def wrap_training(self) -> None:
        """The parts of real trainings, and of what comes after them."""
        parts = {
            "training steps": [(Trainer, "train_steps")],
            "evaluation": [(Trainer, "_measure")],
            "building networks": [(Trainer, "build")],
            "records": [(FoldRecords, name) for name in ("__init__", "append", "save")],
            "checkpoints": [(checkpoints, "save"), (checkpoints, "clone")],
            "scoring": [(Scorer, "score"), (Scorer, "score_baselines")],
            "notes of progress": [(worker_room, "write_progress")],
            "reading images": [(prepared_room, "load_dataset")],
        }
        for label, functions in parts.items():
            for owner, name in functions:
                self.wrap(owner, name, label)


@dataclass(frozen=True)
class Work:
    """What one worker did, in seconds and numbers."""

    began: float  # by time.monotonic(), which all processes share
    ended: float
    cpu: float
    seconds: dict[str, float]
    calls: dict[str, int]


def run_workers(out: Path, count: int, training: bool) -> list[Work]:
    """Fork so many workers, wait for their end, and return what each of them did.

    Threads would not do: Optuna's storages and samplers, and Python itself, would share locks.
    """
    gc.collect()
    gc.freeze()  # else the first collection of every child copies all memory
    context = multiprocessing.get_context("fork")
    children = [
        context.Process(target=be_worker, args=(out, number, training)) for number in range(count)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
    gc.unfreeze()
    if any(child.exitcode != 0 for child in children):
        raise SystemExit(f"workers ended with {[child.exitcode for child in children]}")
    return [Work(**json.loads(work_file(out, n).read_text())) for n in range(count)]


def be_worker(out: Path, number: int, training: bool) -> None:
    """The worker's own loop, in a child process, with a clock around it."""
    die_with_parent()
    began, cpu, clock = time.monotonic(), time.process_time(), Clock()
    clock.wrap_storage()
    if training:
        clock.wrap_training()
    else:
        Sleeping.clock = TimedLoop.clock = clock
        pretended = {"RecordedExperiment": Searches, "TrialRunner": Sleeping, "WorkLoop": TimedLoop}
        vars(worker_room).update(pretended)
    statements = count_statements()
    status = worker_room.work(out, number)
    clock.stop()
    found = Work(
        began,
        time.monotonic(),
        time.process_time() - cpu,
        dict(clock.seconds),
        {**clock.calls, "statements": len(statements)},
    )
    work_file(out, number).write_text(json.dumps(vars(found)))
    sys.exit(status)


def count_statements() -> list[None]:
    """A list that grows by one with every SQL statement."""
    seen: list[None] = []

    @sqlalchemy.event.listens_for(sqlalchemy.Engine, "before_cursor_execute")
    def note(*arguments: Any) -> None:
        seen.append(None)

    return seen


def work_file(out: Path, number: int) -> Path:
    """Where a worker leaves what it did."""
    return out / "logs" / f"work_{number}.json"


def begin(experiment: Experiment, out: Path) -> None:
    """What ``reality-check run`` does before it starts workers."""
    with open_folder(check(experiment), out) as recorded:
        recorded.clear_failures()
        (out / "logs").mkdir(exist_ok=True)
        if isinstance(recorded.storage, PatientStorage):
            recorded.storage.engine.dispose()  # no connection may be shared with the children


def trial_part(options: argparse.Namespace) -> None:
    """Where the time of one worker goes."""
    experiment = compose(real_experiment(options))
    with tempfile.TemporaryDirectory(prefix="scaling-") as name:
        out = Path(name) / "out"
        begin(experiment, out)
        (work,) = run_workers(out, 1, training=True)
    total = work.ended - work.began
    own = {k: v for k, v in work.seconds.items() if not k.endswith(ELSEWHERE)}
    rows = [
        [
            label,
            str(work.calls.get(label, "")),
            f"{seconds:.2f} s",
            f"{100 * seconds / total:.1f} %",
        ]
        for label, seconds in sorted(own.items(), key=lambda pair: -pair[1])
        if seconds >= 0.005
    ]
    rows.append(["all", "", f"{total:.2f} s", f"{100 * sum(own.values()) / total:.1f} %"])
    print_table(["a worker's time", "calls", "seconds", "share"], rows)
    print_start()


def print_start() -> None:
    """Seconds until a fresh process can work."""
    program = "import reality_check.launch.worker"
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True)
        seconds.append(time.perf_counter() - started)
    print(f"\na worker's imports: {median(seconds):.1f} s")


# -- pretended trainings -------------------------------------------------------------------------


class Searches(RecordedExperiment):
    """The search alone, so that no worker waits for the end of one but at the very end."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.plan = tuple(study for study in self.plan if study.key.stage is Stage.SEARCH)


class Sleeping(TrialRunner):
    """Its trainings sleep; claims, heartbeats, results and waiting are real."""

    clock = Clock()
    seconds = 0.0

    def do(self, study: StudyState, context: TrialContext) -> TrialResult:
        """Sleep, and find something by chance."""
        note = {"doing": study.stage, "method": study.method, "trial_index": context.trial_index}
        self.on_progress(note)
        length = self.length(study, context.trial_index)
        with self.clock.of("training"):
            time.sleep(length)
        self.on_progress(note)
        folds = range(4)
        curve = [[2 * step, 0.123456789 + step] for step in range(EVALUATIONS)]
        attributes = {
            "fold_values": [0.5 for _ in folds],
            "fold_epochs": [EVALUATIONS for _ in folds],
            "follow_up_epochs": [0 for _ in folds],
            "epochs_spent": [2 * EVALUATIONS for _ in folds],
            "curves": [curve for _ in folds],
        }
        return TrialResult(random.Random(repr(context.params)).random(), attributes)

    def length(self, study: StudyState, trial_index: int) -> float:
        """Between 3/4 and 5/4 of the mean: real trainings do not end together."""
        draw = random.Random(derive(0, study.method, study.stage, trial_index))
        return self.seconds * draw.uniform(0.75, 1.25)


class TimedLoop(WorkLoop):
    """Counts what is asked of the storage without success as waiting: it keeps nobody from work."""

    clock = Clock()

    def step(self) -> Literal["worked", "wait", "done"]:
        before = self.clock.seconds["storage"]
        outcome = super().step()
        if outcome == "wait":
            asked = self.clock.seconds["storage"] - before
            self.clock.seconds["storage"] -= asked
            self.clock.seconds["waiting"] += asked
        return outcome


@dataclass(frozen=True)
class Simulation:
    """What came of one pretended experiment."""

    workers: int
    wanted: int  # trials
    attempts: int  # trials that the storage holds: also those that found their trial index taken
    wall: float
    server_cpu: float | None
    work: list[Work]

    def seconds(self, label: str) -> float:
        """Sum over all workers."""
        return sum(work.seconds.get(label, 0.0) for work in self.work)

    def calls(self, label: str) -> int:
        """Sum over all workers."""
        return sum(work.calls.get(label, 0) for work in self.work)

    def share(self, *labels: str) -> float:
        """Of the time of all workers, in percent."""
        return 100 * sum(map(self.seconds, labels)) / (self.workers * self.wall)


def simulate(
    url: str | None, workers: int, seconds: float, each: int, studies: int, pid: int | None
) -> Simulation:
    """Let so many workers do a search whose trainings sleep.

    Args:
        url: of the storage; None: SQLite in the output folder.
        workers: how many.
        seconds: of a training, in the mean.
        each: trials of each worker, in the mean.
        studies: how many methods, each with a study for the search.
        pid: of the database server on this machine, whose CPU time is wanted.
    """
    trials = math.ceil(each * workers / studies)
    experiment = pretended_experiment(trials, studies, url)
    with tempfile.TemporaryDirectory(prefix="scaling-") as name, lent_password(url):
        out = Path(name) / "out"
        begin(experiment, out)
        Sleeping.seconds = seconds
        before = cpu_seconds(pid)
        work = run_workers(out, workers, training=False)
        server_cpu = None if pid is None else cpu_seconds(pid) - before
        recorded = Searches(load_locked(out).model_copy(update={"storage": url}), out)
        stages = list(recorded.states().ready())
        if not recorded.is_complete():
            raise SystemExit("the workers ended before the work did")
        return Simulation(
            workers=workers,
            wanted=sum(stage.num_trials for stage in stages),
            attempts=sum(len(stage.attempts) for stage in stages),
            wall=max(w.ended for w in work) - min(w.began for w in work),
            server_cpu=server_cpu,
            work=work,
        )


def pretended_experiment(trials: int, studies: int, url: str | None) -> Experiment:
    """Many methods with four searched parameters each, on a few images."""
    methods = [{"base": "quick/contrastive", "name": f"method_{n:02d}"} for n in range(studies)]
    small = {"batch_size": 4, "embedding_size": 4}
    return compose(
        {
            "name": "sleeping",
            "dataset": {"base": "glyphs", "classes": 16, "images_per_class": 4},
            "model": {"base": "conv4", "arguments": {"width": 4}},
            "protocol": {
                "base": "quick_one_search",
                "training": small,
                "search": {"trials": trials, "startup_trials": min(trials, 10)},
                "reproductions": 1,
                "categories": ["aggregate"],
            },
            "methods": methods,
            "device": "cpu",
            "storage": url,
        }
    )


def storage_part(options: argparse.Namespace) -> None:
    """What a trial costs one worker beside its training."""
    header = ["storage", "trials", "opening", "calls a trial", "SQL statements a trial"]
    header += ["storage a trial", "heartbeat", "all else", "server's CPU"]
    print_table(header, _storage_rows(options))


def _storage_rows(options: argparse.Namespace) -> Iterator[list[str]]:
    for name in filter(is_here, options.storages):
        with opened(name) as (url, pid):
            found = simulate(url, 1, 0.0, options.each, options.studies, pid)
        per_trial = [
            1000 * value / found.wanted
            for value in (
                found.seconds("storage"),
                found.seconds(f"storage{ELSEWHERE}"),
                found.seconds("rest") + found.seconds("training"),
            )
        ]
        yield [
            name,
            str(found.wanted),
            f"{found.seconds('opening'):.2f} s",
            f"{found.calls('storage') / found.wanted:.0f}",
            f"{found.calls('statements') / found.wanted:.0f}",
            *(f"{value:.0f} ms" for value in per_trial),
            server_share(found),
        ]


def simulation_part(options: argparse.Namespace) -> None:
    """How many workers a storage bears."""
    header = ["storage", "workers", "a training", "trials", "lost races", "wall time", "training"]
    header += ["in the storage", "all else", "waiting", "storage a trial", "server's CPU"]
    print_table([*header, f"storage at {LONG / 60:g} min"], _simulation_rows(options))


def _simulation_rows(options: argparse.Namespace) -> Iterator[list[str]]:
    for name, workers, seconds in itertools.product(
        filter(is_here, options.storages), options.workers, options.seconds
    ):
        if workers > MOST_WORKERS.get(name, workers):
            continue
        with opened(name) as (url, pid):
            found = simulate(url, workers, seconds, options.each, options.studies, pid)
        own = (found.seconds("storage") + found.seconds("opening")) / found.wanted
        shares = [found.share("training"), found.share("storage", "opening")]
        shares += [found.share("rest"), 100 - sum(shares) - found.share("rest")]
        yield [
            name,
            str(workers),
            f"{seconds:g} s",
            str(found.wanted),
            str(found.attempts - found.wanted),
            f"{found.wall:.1f} s",
            *(f"{share:.1f} %" for share in shares),
            f"{own:.2f} s",
            server_share(found),
            f"{100 * own / (own + LONG):.3f} %",
        ]


def server_share(found: Simulation) -> str:
    """CPU time of the database server for a trial."""
    if found.server_cpu is None:
        return ""
    return f"{1000 * found.server_cpu / found.wanted:.0f} ms"


# -- storages ------------------------------------------------------------------------------------


@functools.cache
def server_class(name: str) -> Any:
    """The tests' server with its own defaults, so that a commit waits for the disk."""
    path = Path(__file__).parents[1] / "tests" / "support" / "servers.py"
    spec = importlib.util.spec_from_file_location("servers", path)
    assert spec is not None
    assert spec.loader is not None
    servers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(servers)
    kind = {"postgresql": servers.Postgres, "mariadb": servers.MariaDB}[name]
    return type(kind.__name__, (kind,), {"hasty": ()})


def not_here(name: str) -> str | None:
    """Why a storage cannot be tried here, if so."""
    if name not in ("postgresql", "mariadb"):
        return None
    kind = server_class(name)
    driver = kind.scheme.partition("+")[2]
    if kind.missing() is not None:
        return f"{kind.missing()} is not installed"
    return None if importlib.util.find_spec(driver) else f"{driver} is not installed"


def is_here(name: str) -> bool:
    """Whether a storage can be tried here; says why not."""
    reason = not_here(name)
    if reason is not None:
        print(f"{name}: not run: {reason}\n")
    return reason is None


@contextlib.contextmanager
def opened(name: str) -> Iterator[tuple[str | None, int | None]]:
    """The URL of a fresh storage and, of a server, its process; both None for the default."""
    if name == "sqlite":
        yield None, None
    else:
        server = server_class(name)()
        try:
            yield server.url(), server.pid
        finally:
            server.close()


def cpu_seconds(pid: int | None) -> float:
    """CPU time of a process and its children, also of those that have ended (Linux)."""
    if pid is None:
        return 0.0
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = stat.read_text().rpartition(")")
            fields = rest.split()
            own, parent = int(name.split()[0]), int(fields[1])
            if own == pid:
                ticks += sum(map(int, fields[11:15]))
            elif parent == pid:
                ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
