"""Workers on a real SLURM of two pretended nodes, with a partition that pre-empts the other."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support import one_machine_slurm as one_machine

from reality_check.api import run
from reality_check.config import Experiment, compose
from reality_check.config.layers import merge
from reality_check.config.yaml_text import read_yaml
from reality_check.launch import slurm as launcher
from reality_check.launch.parallelism import Parallelism
from reality_check.results import ExperimentResults
from reality_check.studies.campaign import Campaign
from reality_check.studies.output_folder import load_locked
from reality_check.utils.passwords import PASSWORD_VARIABLE, split_password

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.xdist_group("slurm"),
]
TRIALS = 4
AWAY = "the storage does not answer"
NODES = ("one", "two")


class TwoNodes(one_machine.OneMachineSlurm):
    """Two slurmd with a pretended GPU each. Jobs of ``urgent`` pre-empt those of ``main``."""

    def start(self) -> None:
        """Start everything, one after the other, and wait until both nodes are ready."""
        self._write()
        self._divide()
        self._start_munge()
        self._start_database()
        self._run("slurmdbd")
        self.wait_until(lambda: self._works("sacctmgr", "-n", "show", "cluster"))
        self._run("sacctmgr", "-i", "-Q", "add", "cluster", "test")
        self._run("slurmctld", "-f", str(self.config))
        for node in NODES:
            self._run("slurmd", "-f", str(self.config), "-N", node)
        idle = ("sinfo", "-h", "-p", "main", "-t", "idle", "-o", "%D")
        self.wait_until(lambda: self.ask(*idle).strip() == "2")

    def stop(self) -> None:
        """Cancel all jobs and end everything."""
        self.cancel_all()
        pids = [self._end(f"slurmd-{node}") for node in NODES]
        self.wait_until(lambda: not any(pid and Path(f"/proc/{pid}").exists() for pid in pids))
        super().stop()

    def _divide(self) -> None:
        """Make two nodes of the one in the configuration."""
        host, ports = one_machine._host(), one_machine._ports(2)
        cpus = max(1, (os.cpu_count() or 1) // 2)
        for name in NODES:
            (self.root / f"spool-{name}").mkdir()
        kept = [
            line
            for line in self.config.read_text().splitlines()
            if not line.startswith(("NodeName", "PartitionName", "SlurmdPort", "Slurmd"))
            or line.startswith("SlurmdUser")
        ]
        kept += [
            f"SlurmdSpoolDir={self.root}/spool-%n",
            f"SlurmdPidFile={self.root}/slurmd-%n.pid",
            f"SlurmdLogFile={self.root}/slurmd-%n.log",
            "PreemptType=preempt/partition_prio",
            "PreemptMode=REQUEUE",
        ]
        kept += [
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} "
            "RealMemory=1000 Gres=gpu:fake:1 State=UNKNOWN"
            for name, port in zip(NODES, ports, strict=True)
        ]
        both = "Nodes=one,two MaxTime=INFINITE State=UP OverSubscribe=NO"
        kept += [
            f"PartitionName=main {both} Default=YES PriorityTier=1 GraceTime=300",
            f"PartitionName=urgent {both} PriorityTier=10",
        ]
        self.config.write_text("\n".join(kept) + "\n")
        gpus = [
            f"NodeName={name} Name=gpu Type=fake File={self.root}/gpu{number}\n"
            for number, name in enumerate(NODES)
        ]
        (self.root / "gres.conf").write_text("".join(gpus))


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[TwoNodes]:
    """A running SLURM of two nodes."""
    with one_machine.running(TwoNodes) as slurm:
        yield slurm


@pytest.fixture
def slurm(two_nodes: TwoNodes, monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoNodes]:
    """A running SLURM without jobs, which this process speaks to, and often."""
    monkeypatch.setenv("SLURM_CONF", str(two_nodes.config))
    monkeypatch.setattr(launcher, "POLL_SECONDS", 1.0)
    yield two_nodes
    two_nodes.cancel_all()


@pytest.fixture(scope="module")
def experiment(tiny: Path) -> Experiment:
    """The tiny experiment with fold runs that last some seconds."""
    changes = {
        "protocol": {
            "training": {"max_epochs": 40, "patience": None},
            "search": {"trials": TRIALS},
            "categories": ["aggregate", "ensemble"],
        },
        "slurm": {"hours": 0.5, "gpus": 1, "cpus": 1, "memory": "200M"},
    }
    return compose(merge(read_yaml(tiny), changes))


def scores(results: ExperimentResults) -> list[tuple[Any, ...]]:
    return sorted((r.category, r.reproduction, r.metric, r.value) for r in results.rows)


@pytest.fixture(scope="module")
def alone(
    experiment: Experiment, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[Any, ...]]:
    """The scores that one worker finds that nobody disturbs."""
    return scores(run(experiment, tmp_path_factory.mktemp("alone") / "out"))


def all_trials(out: Path) -> list[Any]:
    """The trials of all stages, each with one complete attempt and nothing left over."""
    wanted = {"search": TRIALS, "reproductions": 1, "baselines": 1}
    found = []
    for unit in Campaign(load_locked(out), out).ready_stages():
        trials = unit.study.trials()
        complete = [trial for trial in trials if trial.state == "complete"]
        num_trials = sorted(trial.trial_index for trial in complete)
        assert num_trials == list(range(wanted.pop(unit.stage)))
        assert all(trial.state in ("complete", "failed") for trial in trials)
        found += trials
    assert not wanted
    return found


def jobs_of(out: Path) -> list[str]:
    return list(json.loads((out / "slurm.json").read_text()).values())


def progress(out: Path) -> dict[str, Any]:
    """What worker 0 said last."""
    try:
        state: dict[str, Any] = json.loads((out / "logs" / "worker_0.json").read_text())
    except (OSError, ValueError):
        return {}
    return state


class InTurn:
    """Does one thing after the other, while workers are watched: as soon as worker 0 trains.

    After each it waits until another process is worker 0.
    """

    def __init__(self, out: Path, actions: Sequence[Callable[[], Any]]) -> None:
        self.out, self.left = out, list(actions)
        self._seen: set[int] = set()

    def __call__(self, campaign: Campaign) -> None:
        state = progress(self.out)
        if not self.left or state.get("epoch", 0) <= 2:
            return
        pid = state["worker"]["pid"]
        if pid not in self._seen:
            self._seen.add(pid)
            self.left.pop(0)()


def logs(out: Path) -> str:
    """What all workers said."""
    return "".join(path.read_text() for path in (out / "logs").glob("*.log"))


def kill(out: Path) -> None:
    """End worker 0 as the kernel does when memory is short."""
    os.kill(progress(out)["worker"]["pid"], signal.SIGKILL)


def test_an_array_over_two_nodes(
    slurm: Any, experiment: Experiment, tmp_path: Path, alone: list[tuple[Any, ...]]
) -> None:
    out, told = tmp_path / "out", []
    results = run(experiment, out, Parallelism(2, 1, launcher="slurm"), log=told.append)
    assert scores(results) == alone
    all_trials(out)
    jobs = jobs_of(out)
    assert told == [f"SLURM jobs submitted: {', '.join(jobs)}"]
    nodes = slurm.ask("sacct", "-X", "-n", "-P", "-o", "NodeList", "-j", ",".join(jobs))
    assert sorted(nodes.split()) == ["one", "two"]


def test_one_worker_interrupted_in_every_way(
    slurm: Any, experiment: Experiment, tmp_path: Path, alone: list[tuple[Any, ...]]
) -> None:
    """Its time is nearly over, it is pre-empted, and it is killed as for lack of memory."""
    out, told = tmp_path / "out", []

    def notice() -> None:
        slurm.ask("scancel", "--signal=USR2", jobs_of(out)[0])

    def preempt() -> None:
        # One that needs both nodes.
        slurm.ask("sbatch", "-p", "urgent", "-N", "2", "-o", "/dev/null", "--wrap", "sleep 1")

    steps = InTurn(out, [notice, preempt, lambda: kill(out)])
    results = run(
        experiment, out, Parallelism(1, 1, launcher="slurm"), watch=steps, log=told.append
    )
    assert steps.left == []
    assert scores(results) == alone
    first, second = (text.rpartition(" ")[2] for text in told if "submitted" in text)
    assert f"SLURM job {first} was lost (failed)" in told
    assert len(told) == 3, "twice the same job went on"
    log = (out / "logs" / "worker_0.log").read_text()
    assert log.count(f"SLURM job {first} on") == 3
    assert log.count(f"SLURM job {second} on") == 1
    assert log.count(f"job {first} asks to be queued again") == 2
    failed = [trial for trial in all_trials(out) if trial.state == "failed"]
    assert sum(trial.stopped for trial in failed) == 2
    assert sum(trial.was_abandoned for trial in failed) == 1


@pytest.mark.postgres
def test_folds_at_once_while_a_job_is_killed_and_the_server_restarts(
    slurm: Any,
    postgres: Any,
    experiment: Experiment,
    tmp_path: Path,
    alone: list[tuple[Any, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, told = tmp_path / "out", []
    made = experiment.model_copy(update={"storage": postgres.url()})

    def kill_and_restart() -> None:
        kill(out)
        postgres.stop()
        slurm.wait_until(lambda: AWAY in logs(out))  # else it is back before anybody has noticed
        postgres.start()

    steps = InTurn(out, [kill_and_restart])
    tell = told.append
    results = run(made, out, Parallelism(2, 2, launcher="slurm"), watch=steps, log=tell)
    assert steps.left == []
    assert scores(results) == alone
    assert [text for text in told if "was lost (failed)" in text]
    monkeypatch.setenv(PASSWORD_VARIABLE, split_password(postgres.url())[1] or "")
    failed = [trial for trial in all_trials(out) if trial.state == "failed"]
    assert sum(trial.was_abandoned for trial in failed) == 1
    assert "the storage answers after" in logs(out)
