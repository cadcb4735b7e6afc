"""Finished runs in the formats of other places: whole, valid, and with nothing of the machine."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import re
import socket
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from support.hub_server import COMMIT, local_hub
from support.recorded_runs import experiment, record

import reality_check as rc
from reality_check.api import pack
from reality_check.cli.export import _arrow
from reality_check.cli.main import main
from reality_check.config.compose import compose
from reality_check.registry.croissant import croissant_json
from reality_check.registry.pack import pack_bytes, read_pack
from reality_check.report.tables import csv_of

Export = Callable[..., dict[str, bytes]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with a claim, and settings of its machine."""
    folder = tmp_path_factory.mktemp("home_of_somebody") / "run"
    claim = "{name: better, source: '000, Table 1', text: A beats b, pairs: [[a, b]]}"
    methods = ", ".join(f"{{name: {name}, base: quick/contrastive}}" for name in "ab")
    of = experiment(f"methods=[{methods}]", f"claims=[{claim}]")
    address = "postgresql+psycopg://me:hunter2@db/x"
    plain = of.plain() | {
        "dataset": {"reader": "tensors", "name": "mine", "path": "/home/somebody/mine.npz"},
        "model": {**of.plain()["model"], "weights": "/home/somebody/w.pt"},
        "slurm": {"account": "a_secret"},
    }
    plain["methods"][0]["arguments"] = {"collect_stats": [address, "~/somebody/x"]}
    record(compose(plain), folder, above={"a": 0.1})
    return folder


@pytest.fixture
def export(run: Path, tmp_path: Path) -> Export:
    """Export the run, and return the files by name."""

    def exported(to: str, *options: str, source: Path = run) -> dict[str, bytes]:
        out = tmp_path / to
        assert main(["export", str(source), "--to", to, "--out", str(out), *options]) == 0
        return {path.name: path.read_bytes() for path in out.iterdir()}

    return exported


def rows(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode())))


def test_csv_has_scores_trials_and_verdicts(run: Path, export: Export) -> None:
    files, results = export("csv"), rc.load_results(run)
    assert {*files} == {
        f"{name}.csv" for name in ("results", "trials", "baselines", "comparisons", "claims")
    }
    assert [float(row["value"]) for row in rows(files["results.csv"])] == [
        record["value"] for record in results.records()
    ]
    assert len(rows(files["trials.csv"])) == len(results.trials())
    (claim,) = rows(files["claims.csv"])
    assert (claim["name"], claim["criterion"]) == ("better", "a above b: MAP@R (aggregate)")
    assert claim["verdict"].startswith(claim["outcome"])


def test_the_folder_of_the_hub_is_whole(run: Path, export: Export, tmp_path: Path) -> None:
    from huggingface_hub import DatasetCard

    made = pack(run, tmp_path / "made.pack")
    files = export("hub", "--license", "cc-by-4.0", source=made)
    assert files["made.pack"] == made.read_bytes()
    card = DatasetCard(files["README.md"].decode())
    assert card.data.license == "cc-by-4.0"
    assert "a retrains above b" in card.text or "a lead on MAP@R" in card.text
    assert "{from: made.pack}" in card.text
    tables = {each["config_name"]: each["data_files"] for each in card.data.configs}
    assert {*tables.values()} == {name for name in files if name.endswith(".parquet")}
    results = rc.load_results(run)
    for name, records in {"results": results.records(), "trials": results.trials()}.items():
        assert parquet.read_table(io.BytesIO(files[tables[name]])).to_pylist() == records


@pytest.mark.slow  # the import of datasets
def test_datasets_reads_the_folder_of_the_hub(run: Path, export: Export, tmp_path: Path) -> None:
    import datasets

    export("hub")
    folder, cache = str(tmp_path / "hub"), str(tmp_path / "cache")
    names = datasets.get_dataset_config_names(folder)
    assert names == ["results", "trials", "baselines", "comparisons", "claims"]
    tables = {
        name: datasets.load_dataset(folder, name, split="train", cache_dir=cache) for name in names
    }
    assert list(tables["trials"]) == rc.load_results(run).trials()


@pytest.mark.parametrize("to", ["croissant", "hub"])
def test_croissant_describes_every_file_and_column(
    export: Export, to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = export(to, "--license", "cc-by-4.0")
    metadata = json.loads(files.pop("croissant.json"))
    files.pop("README.md", None)
    assert {each["contentUrl"]: each["sha256"] for each in metadata["distribution"]} == {
        name: sha256(content).hexdigest() for name, content in files.items()
    }
    if to == "croissant":
        for table in metadata["recordSet"]:
            columns = [field["source"]["extract"]["column"] for field in table["field"]]
            assert columns == [*rows(files[f"{table['@id']}.csv"])[0]]
    mlcroissant = pytest.importorskip("mlcroissant")
    monkeypatch.setattr(socket.socket, "connect", None)  # it needs no network
    dataset = mlcroissant.Dataset(str(tmp_path / to / "croissant.json"))
    assert not dataset.metadata.ctx.issues.errors
    for table in metadata["recordSet"]:
        assert next(iter(dataset.records(table["@id"])))


def test_types_of_columns() -> None:
    values: dict[str, list[Any]] = {"whole": [1, None], "number": [1, 2.5], "flag": [True, False]}
    values |= {"mixed": ["x", 2], "none": [None, None]}
    values |= {"lines": ["a\nb", "NaN"], "infinite": [math.inf, 0.1 + 0.2]}
    table = _arrow(csv_of(values, zip(*values.values(), strict=True)).encode())
    assert table.to_pydict() == values | {"mixed": ["x", "2"]}
    fields = json.loads(croissant_json({}, {}, {"x.csv": table}))["recordSet"][0]["field"]
    assert {field["@id"]: field["dataType"] for field in fields} == {
        "x/whole": "sc:Integer",
        "x/number": "sc:Float",
        "x/flag": "sc:Boolean",
        "x/mixed": "sc:Text",
        "x/none": "sc:Text",
        "x/lines": "sc:Text",
        "x/infinite": "sc:Float",
    }


def test_the_card_of_a_loss(export: Export) -> None:
    files = export("card", "--method", "a")
    text = files["a.md"].decode()
    assert [*files] == ["a.md"]
    assert text.startswith("# a\n")
    scores = text.partition("## Verdict")[0]
    assert re.search(r"^\| a \|.*\| 2 \|", scores, re.MULTILINE)
    assert "| b |" not in scores
    assert "*untrained*" in scores
    assert "A beats b (000, Table 1):" in text
    assert "aggregate: what was found for" in text
    assert re.search(r"\| Protocol hash \| \w{16} \|", text)
    assert "{from: run.pack, methods: [a]}" in text


def test_without_a_name_each_loss_has_a_card(export: Export) -> None:
    assert {*export("card")} == {"a.md", "b.md"}


@pytest.mark.parametrize("to", ["hub", "croissant", "csv", "card"])
def test_nothing_of_the_machine_is_in_it(export: Export, tmp_path: Path, to: str) -> None:
    files = export(to)
    for name in [name for name in files if name.endswith(".pack")]:
        with zipfile.ZipFile(io.BytesIO(files.pop(name))) as archive:
            files |= {inner: archive.read(inner) for inner in archive.namelist()}
    text = b"\n".join(files.values()).decode("latin-1")
    secrets = (
        "somebody",
        "a_secret",
        "hunter2",
        str(tmp_path),
        "/tmp/",
        f"{socket.gethostname()}\n",
    )
    for secret in secrets:
        assert secret not in text, secret


def test_the_code_in_a_pack_is_not_executed(
    run: Path, export: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = b"raise SystemExit('the code of a pack was executed')"
    (tmp_path / "mine.py").write_bytes(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    given = read_pack(pack(run, tmp_path / "given.pack"))
    methods = [each.model_copy(update={"loss": "mine.Loss"}) for each in given.experiment.methods]
    theirs = dataclasses.replace(
        given,
        experiment=given.experiment.model_copy(update={"methods": methods}),
        files={**given.files, "sources/mine.py": code},
    )
    file = tmp_path / "theirs.pack"
    file.write_bytes(pack_bytes(theirs, {}))
    for to in ("hub", "card"):
        export(to, source=file)
    taken = compose(experiment().plain() | {"methods": [{"from": str(file)}]})
    assert {method.loss for method in taken.methods} == {"mine.Loss"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--to", "card", "--method", "c"], "has no method 'c'; it has a, b"),
        (["--to", "csv", "--method", "a"], "--method is for --to card only"),
        (["--to", "csv", "--push", "me/x"], "--push is for --to hub only"),
        (["--to", "csv", "--license", "mit"], "--license is for --to hub or croissant only"),
        (["--to", "hub", "--push", "mine"], "--push mine: write OWNER/NAME"),
        (["--to", "hub", "--push", "me/x"], "--push needs a token of the Hub"),
    ],
)
def test_what_is_refused(
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    words: str,
) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    assert main(["export", str(run), "--out", str(tmp_path / "out"), *options]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_full_folder_and_a_run_that_goes_on_are_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun, out = tmp_path / "begun", tmp_path / "out"
    record(experiment(), begun, until=2)
    assert main(["export", str(begun), "--to", "csv", "--out", str(out)]) == 2
    assert "begun is not finished" in capsys.readouterr().err
    assert not out.exists()
    assert main(["export", str(run), "--to", "csv", "--out", str(begun)]) == 2
    assert f"--out {begun} is there already" in capsys.readouterr().err


def test_it_is_pushed_and_taken_from_there(
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    with local_hub(monkeypatch, str(tmp_path / "cache")) as hub:
        arguments = ["export", str(run), "--to", "hub", "--out", str(out), "--push"]
        assert main([*arguments, "me/results"]) == 0
        assert f"Pushed: {hub.url}/datasets/me/results" in capsys.readouterr().out
        assert hub.files == {path.name: path.read_bytes() for path in out.iterdir()}
        assert hub.tokens == {"Bearer hf_of_a_test"}
        address = "hf://datasets/me/results/run.pack@main"
        assert f"{{from: {address}}}" in hub.files["README.md"].decode()

        entry = {"from": f"{address[:-4]}{COMMIT}", "methods": ["a"]}
        plain = experiment().plain() | {"methods": [entry]}
        (method,) = compose(plain).methods
        assert method.packed is not None
        assert Path(method.packed.file).read_bytes() == (out / "run.pack").read_bytes()
        assert capsys.readouterr().err.count(f"Downloading {entry['from']}\n") == 1
        hub.requests.clear()
        compose(plain)
        assert hub.requests == [], "it is downloaded once"
        assert "Downloading" not in capsys.readouterr().err

        for path in out.iterdir():
            path.unlink()
        assert main([*arguments, "theirs/results"]) == 2
        assert "could not be pushed to theirs/results (" in capsys.readouterr().err
