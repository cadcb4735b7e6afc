"""The address of a server that belongs to an output folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.paths import TINY

from reality_check.config import load_experiment
from reality_check.studies.folder_server import find_server, server_url
from reality_check.studies.output_folder import check_empty, same_database
from reality_check.studies.recorded_experiment import storage_url
from reality_check.studies.storage import absolute_url, open_storage
from reality_check.utils.errors import UsageError

ADDRESS = {"host": "n7", "port": 5433, "user": "me", "database": "postgres", "generation": 2}


def serve(out: Path, **changes: object) -> str:
    (out / "storage").mkdir(parents=True)
    (out / "storage/address").write_text(json.dumps(ADDRESS | changes))
    (out / "storage/password").write_text("p@ss")
    return server_url(out)


def test_the_address_is_read_anew_each_time(tmp_path: Path) -> None:
    url = serve(tmp_path / "out")
    first, password = find_server(url)
    assert first.render_as_string() == "postgresql+psycopg://me@n7:5433/postgres"
    assert password == "p@ss"
    moved = json.dumps(ADDRESS | {"host": "n8"})
    (tmp_path / "out/storage/address").write_text(moved)
    assert find_server(url)[0].host == "n8"


def test_an_experiment_names_it_by_a_word(tmp_path: Path) -> None:
    experiment = load_experiment(TINY, ["storage=server"])
    assert experiment.plain()["storage"] == absolute_url("server") == "server"
    assert same_database("server", "server")
    assert not same_database("server", "postgresql+psycopg://tom@host/db")
    out = tmp_path / "out"
    assert storage_url(experiment, out) == f"server://{out}/storage"
    serve(tmp_path)  # that of a suite serves its data sets
    assert storage_url(experiment, out) == f"server://{tmp_path}/storage"
    serve(out)
    assert storage_url(experiment, out) == f"server://{out}/storage"
    check_empty(out)  # the server starts before the first run


def test_what_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    out = tmp_path / "out"
    start = f"to start it, in another terminal or as a job: reality-check storage serve {out}"
    with pytest.raises(UsageError, match=start):
        open_storage(server_url(out))
    url = serve(out, host="127.0.0.1", port=1)
    with pytest.raises(UsageError, match=start) as caught:
        open_storage(url)
    assert "\n" not in str(caught.value)
    assert "p@ss" not in str(caught.value)
    (out / "storage/address").write_text("{")
    with pytest.raises(UsageError, match="cannot be found"):
        open_storage(url)
