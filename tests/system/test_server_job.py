"""A server that is a SLURM job of its own."""

from __future__ import annotations

import json
import os
import pwd
import sys
from pathlib import Path
from typing import Any

import pytest
from support import slurm_jobs
from support.slurm_jobs import Scores, jobs, jobs_of, scores

from reality_check.api import run
from reality_check.launch import server_job

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.postgres,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.usefixtures("blank_figures"),
]
#: Python in a server's job is nobody's, since PostgreSQL refuses root; here all jobs are root's.
_AS_NOBODY = """
import os, sys
if os.environ.get("SLURM_JOB_NAME", "").endswith("-storage") and os.geteuid() == 0:
    may = "+dac_override,+dac_read_search"
    user = ["--reuid=nobody", "--regid={group}", "--clear-groups"]
    command = ["setpriv", *user, f"--inh-caps={{may}}", f"--ambient-caps={{may}}", "--"]
    os.execvp("setpriv", [*command, sys.executable, *sys.orig_argv[1:]])
"""


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An output folder whose storage belongs to nobody."""
    nobody = pwd.getpwnam("nobody")
    (tmp_path / "site").mkdir()
    text = _AS_NOBODY.format(group=nobody.pw_gid)
    (tmp_path / "site/sitecustomize.py").write_text(text)
    paths = [str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")]), *sys.path]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    storage = tmp_path / "out/storage"
    storage.mkdir(parents=True)
    os.chown(storage, nobody.pw_uid, nobody.pw_gid)
    return tmp_path / "out"


def test_a_server_that_is_a_job_is_requeued_replaced_and_ends_with_the_run(
    slurm: Any, out: Path, alone: Scores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notice of its time limit, then a cancellation, while a worker trains."""
    monkeypatch.setattr(server_job, "POLL_SECONDS", 1.0)
    # SLURM lets root's job be requeued by nobody.
    slurm.ask("sacctmgr", "-i", "add", "user", "nobody", "account=root", "adminlevel=admin")
    told: list[str] = []
    servers: list[str] = []

    def generation() -> int:
        return json.loads((out / "storage/address").read_text())["generation"]

    def watch(recorded: Any) -> None:
        file = out / "logs/worker_0.json"
        if servers or not file.exists() or json.loads(file.read_text()).get("epoch", 0) <= 2:
            return
        servers.append((out / "storage/job").read_text())
        slurm.ask("scancel", "--signal=USR2", servers[0])
        # Training continues without a server, and the run must not end before the second one does.
        slurm.wait_until(lambda: generation() == 2)
        servers.append((out / "storage/job").read_text())
        slurm.ask("scancel", servers[1])

    plain = slurm_jobs.experiment()
    experiment = plain.model_copy(update={"storage": "server"})
    results = run(experiment, out, jobs(1), watch=watch, log=told.append)
    assert scores(results) == alone
    servers.append((out / "storage/job").read_text())
    first, requeued, replacement = servers
    assert first == requeued != replacement
    submitted = [text for text in told if "for the storage" in text]
    assert [text.rpartition(" ")[2] for text in submitted] == [first, replacement]
    assert generation() == 3
    slurm.wait_until(lambda: not slurm.ask("squeue", "-h"))
    assert not (out / "storage/lease").exists()
    assert len(jobs_of(out)) == 1
