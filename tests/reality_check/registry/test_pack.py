"""A pack: all that a report needs of a finished folder, and nothing of its owner's machine."""

from __future__ import annotations

import dataclasses
import json
import re
import socket
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from support.recorded_runs import experiment, record

import reality_check as rc
from reality_check.api import pack
from reality_check.cli.main import main
from reality_check.config.compose import compose
from reality_check.config.packs import SCHEMA
from reality_check.config.search import ALL_KEYS
from reality_check.registry.pack import _hash, open_pack, protocol_hash, read_pack
from reality_check.studies.plain_study import plain_study, restore_study
from reality_check.utils.archive import seal, unseal
from reality_check.utils.errors import UsageError


@pytest.fixture(scope="module")
def made(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack(runs / "both", tmp_path_factory.mktemp("packs") / "both.pack")


def test_a_pack_has_the_results_of_its_folder(runs: Path, made: Path) -> None:
    folder, packed = rc.load_results(runs / "both"), rc.load_results(made)
    for field in dataclasses.fields(folder):
        if field.name != "queries":
            assert getattr(folder, field.name) == getattr(packed, field.name), field.name
    assert folder.queries is not None
    assert packed.queries is not None
    for place in {(row.method, row.category, row.reproduction) for row in folder.rows}:
        expected, found = folder.queries.load(*place), packed.queries.load(*place)
        assert expected is not None
        np.testing.assert_array_equal(expected, found)


def test_its_claims_have_the_verdicts_of_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claim = "{name: better, source: '000, Table 1', text: A beats b, pairs: [[a, b]]}"
    methods = ", ".join(f"{{name: {name}, base: quick/contrastive}}" for name in "ab")
    record(experiment(f"methods=[{methods}]", f"claims=[{claim}]"), tmp_path / "run")
    file = pack(tmp_path / "run", queries=False)
    capsys.readouterr()
    assert main(["verdicts", str(tmp_path / "run")]) == 0
    of_folder = capsys.readouterr().out
    assert main(["verdicts", str(file)]) == 0
    assert capsys.readouterr().out == of_folder
    assert "supported if a above b" in of_folder
    file.write_bytes(file.read_bytes()[:-100])
    assert main(["verdicts", str(file)]) == 2
    assert capsys.readouterr().err.startswith(f"reality-check: {file}")


def test_the_same_folder_gives_the_same_bytes(runs: Path, made: Path, tmp_path: Path) -> None:
    again = pack(runs / "both", tmp_path / "again.pack")
    assert again.read_bytes() == made.read_bytes()
    assert open_pack(made).studies == open_pack(runs / "both").studies


def test_it_may_leave_out_the_scores_of_queries(runs: Path, made: Path, tmp_path: Path) -> None:
    small = pack(runs / "both", tmp_path / "small.pack", queries=False)
    assert small.stat().st_size < made.stat().st_size
    found = rc.load_results(small)
    assert found.records() == rc.load_results(made).records()
    assert found.queries is None or found.queries.load("contrastive", "ensemble", 0) is None


def test_what_others_find_in_it_without_this_package(made: Path) -> None:
    with zipfile.ZipFile(made) as archive:
        names = archive.namelist()
        about = json.loads(archive.read("pack.json"))
        summary = json.loads(archive.read("summary.json"))
        rows = archive.read("results.csv").decode().splitlines()
    assert {"records.json", "trials.csv", "test_queries.npz"} < {*names}
    assert "contrastive/reproductions/001/queries.npz" in names
    assert not [name for name in names if name.endswith((".pt", ".db", ".lock"))]
    assert [method["name"] for method in summary["methods"]] == [
        "normalized_softmax",
        "contrastive",
    ]
    assert len(rows) == 1 + 2 * 2 * 2 * 3
    assert about["data"] == "d" * 64
    assert "torch" in about["environment"][0]
    assert about["protocol_hash"] == protocol_hash(experiment())


def test_nothing_of_the_machine_is_in_it(tmp_path: Path) -> None:
    of = experiment("slurm.account=secret", "storage=null")
    data = of.plain() | {
        "dataset": {"reader": "tensors", "name": "mine", "path": "/home/somebody/mine.npz"},
        "slurm": {"account": "a_secret"},
        "command": {"submit": "a_secret {command}", "state": "ask {job}", "end": "end {job}"},
    }
    record(compose(data), tmp_path / "mine")
    whole = pack(tmp_path / "mine", tmp_path / "mine.pack")
    with zipfile.ZipFile(whole) as archive:
        text = b"".join(archive.read(name) for name in archive.namelist()).decode("latin-1")
    for secret in ("somebody", "a_secret", socket.gethostname() + '"', str(tmp_path)):
        assert secret not in text, secret
    assert read_pack(whole).experiment.dataset.path == "mine.npz"


#: The defaults of a search until 2026-11, when it had the keys of all kinds.
FLAT = {"trials": 50, "repeats": 1, "sampler": "tpe", "sampler_arguments": {}, "startup_trials": 10}


@pytest.mark.parametrize(
    "search",
    [
        "{kind: one, trials: 2, startup_trials: 1}",
        "{kind: repeated, trials: 2, sampler: random, repeats: 2}",
        "{kind: subsets, trials: 2, budget: 1, retrain_best: 2}",
    ],
)
def test_a_pack_from_before_searches_had_kinds_is_read(search: str, tmp_path: Path) -> None:
    of = experiment(f"protocol.search={search}")
    record(of, tmp_path / "run")
    file, old = pack(tmp_path / "run"), tmp_path / "old.pack"
    archive = unseal(file, SCHEMA)
    flat = {key: getattr(of.protocol.search, key) for key in ALL_KEYS if key != "kind"}
    given = {key: value for key, value in flat.items() if value != FLAT.get(key)}
    about = {key: archive.about[key] for key in archive.about if key not in ("files", "checksum")}
    about["experiment"]["protocol"]["search"] = {**flat, "looks": None}
    about["given"]["protocol"]["search"] = given

    def write(**changes: object) -> None:
        listed = {key: value for key, value in about["protocol"].items() if ".search." not in key}
        counted = {key: value for key, value in (given | changes).items() if key != "repeats"}
        listed |= {f"protocol.search.{key}": value for key, value in counted.items()}
        sealed = {**about, "protocol": listed, "protocol_hash": _hash(listed)}
        old.write_bytes(seal(sealed, archive.files))

    write()
    assert read_pack(old).experiment == read_pack(file).experiment == of
    assert read_pack(old).studies == read_pack(file).studies
    assert rc.load_results(old).records() == rc.load_results(file).records()
    for key, value in {"trials": 3, "sampler": "gp"}.items():
        write(**{key: value})
        with pytest.raises(UsageError, match=rf"in which protocol\.search\.{key} is another"):
            read_pack(old)


def test_a_folder_that_is_not_finished_is_refused(tmp_path: Path) -> None:
    record(experiment(), tmp_path / "begun", until=3)
    with pytest.raises(UsageError, match=r"begun is not finished, .* run it to its end first"):
        pack(tmp_path / "begun")
    assert not (tmp_path / "begun.pack").exists()


def test_the_file_lies_beside_the_folder_unless_it_is_named(runs: Path, tmp_path: Path) -> None:
    assert pack(runs / "one") == (runs / "one.pack").resolve()
    with pytest.raises(UsageError, match=r"is a folder; name the file to write with --out"):
        pack(runs / "one", tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "same"),
    [
        ("protocol.search.trials", 3, False),
        ("protocol.split", {"rule": "kfold", "folds": 2}, False),
        ("model.arguments", {"width": 8}, False),
        ("protocol.note", "another", True),
        ("protocol.final_metrics", ["NMI"], True),
        ("seed", 5, True),
        ("methods", ["contrastive"], True),
    ],
)
def test_the_hash_is_that_of_protocol_and_network(key: str, value: object, same: bool) -> None:
    changed = experiment(f"{key}={json.dumps(value)}")
    assert (protocol_hash(changed) == protocol_hash(experiment())) is same


def resealed(made: Path, target: Path, **changes: object) -> Path:
    """A pack that somebody rewrote with all its checksums."""
    with zipfile.ZipFile(made) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    about = json.loads(files.pop("pack.json")) | changes
    for key in ("files", "checksum"):
        del about[key]
    target.write_bytes(seal(about, files))
    return target


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"protocol_hash": "0123456789abcdef"}, "its protocol hash is 0123456789abcdef, but has a"),
        ({"protocol": {}}, "but has a protocol whose hash is"),
        ({"protocol": {"protocol.search.trials": 9}}, "in which protocol.search.trials is another"),
        ({"version": 0}, "the version of the pack is 0, but can only be 1"),
        ({"schema": "other"}, "is a zip file but no pack"),
        ({"steps": [{"odd": 1}]}, "has records that cannot be read"),
        ({"given": {"name": "x"}}, "the key 'dataset' is missing"),
    ],
)
def test_a_rewritten_pack_is_refused_in_a_sentence(
    made: Path, tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(words)) as caught:
        read_pack(resealed(made, tmp_path / "bad.pack", **changes))
    assert str(caught.value).count("bad.pack") >= 1


def contents(made: Path) -> dict[str, Any]:
    with zipfile.ZipFile(made) as archive:
        about: dict[str, Any] = json.loads(archive.read("pack.json"))
    return about


def test_a_version_with_other_keys_and_defaults_reads_it(made: Path, tmp_path: Path) -> None:
    about = contents(made)
    training = about["experiment"]["protocol"]["training"]
    training["gone"] = 1  # a key that was removed since, at its default
    del training["gradient_clip"]  # one that was added since
    training["patience"] = 77  # one whose default was another
    about["experiment"]["methods"][1]["loss_weight_decay"] = 0.5
    about["given"]["protocol"]["training"].pop("patience", None)
    about["protocol"].pop("protocol.training.patience", None)
    changes = {key: about[key] for key in ("experiment", "given", "protocol")}
    changes["protocol_hash"] = _hash(about["protocol"])
    found = read_pack(resealed(made, tmp_path / "old.pack", **changes)).experiment
    assert found.protocol.training.patience == 77
    assert found.protocol.training.gradient_clip is None
    assert [method.loss_weight_decay for method in found.methods] == [None, 0.5]
    about["given"]["protocol"]["training"]["gone"] = 2  # it was made use of
    with pytest.raises(UsageError, match=r"old.pack: unknown key 'protocol.training.gone'"):
        read_pack(resealed(made, tmp_path / "old.pack", **changes))


@pytest.mark.usefixtures("blank_figures")
def test_a_report_of_a_pack_says_how_to_run_it_again(made: Path, tmp_path: Path) -> None:
    assert main(["report", str(made), "--out", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "report.md").read_text()
    again = f"unzip {made} -d again_given && reality-check run again_given/experiment.yaml --out"
    assert again in text
    with zipfile.ZipFile(made) as archive:
        archive.extractall(tmp_path / "given")
    assert (
        rc.load_experiment(tmp_path / "given" / "experiment.yaml").plain()
        == read_pack(made).experiment.plain()
    )


def test_why_an_attempt_failed_is_told_without_paths(tmp_path: Path) -> None:
    storage = optuna.storages.InMemoryStorage()
    study = optuna.create_study(storage=storage, study_name="x", direction="maximize")
    failed = optuna.trial.create_trial(
        state=optuna.trial.TrialState.FAIL,
        user_attrs={"error": "OSError: no /home/me/x: full", "worker": {"host": "mine"}},
    )
    study.add_trial(failed)
    study.enqueue_trial({})
    plain = plain_study(study)
    assert [trial["attributes"] for trial in plain["trials"]] == [{"error": "OSError"}]
    restore_study(storage, "y", plain)
    restore_study(storage, "y", plain)
    again = optuna.load_study(study_name="y", storage=storage)
    assert plain_study(again) == plain, "what is there already is not put in twice"
