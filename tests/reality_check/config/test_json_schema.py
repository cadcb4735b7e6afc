"""The schema for editors: takes every shipped YAML, refuses what is wrong, explains every key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reality_check.cli.listings import print_listing
from reality_check.cli.starter import SCHEMA, write_starter
from reality_check.config import config_files, load_experiment
from reality_check.config.json_schema import json_schema
from reality_check.config.yaml_text import parse_yaml, read_yaml

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")

#: What a file of each group is.
KINDS = {"methods": "Method", "models": "Model", "protocols": "Protocol"}
STARTER = """\
dataset: glyphs
model: {trunk: conv4}
protocol: {base: quick_one_search, training: {max_epochs: 5}}
methods: [contrastive]
"""


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json_schema()


def problems(schema: dict[str, Any], data: Any) -> list[str]:
    return [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(data)]


def part(schema: dict[str, Any], name: str) -> dict[str, Any]:
    return {"$ref": f"#/definitions/{name}", "definitions": schema["definitions"]}


def test_it_is_a_schema_of_draft_7(schema: dict[str, Any]) -> None:
    jsonschema.Draft7Validator.check_schema(schema)
    text = json.dumps(schema)
    assert "$defs" not in text
    assert "prefixItems" not in text


def test_every_experiment_is_valid(schema: dict[str, Any]) -> None:
    files = config_files("experiments")
    files |= {name: path for name, path in config_files("papers").items() if name.count("/") == 1}
    assert len(files) > 60
    wrong = {name: problems(schema, read_yaml(path)) for name, path in files.items()}
    assert not {name: found for name, found in wrong.items() if found}


@pytest.mark.parametrize("group", KINDS)
def test_every_named_part_is_valid(group: str, schema: dict[str, Any]) -> None:
    for name, path in config_files(group).items():
        assert not problems(part(schema, KINDS[group]), read_yaml(path)), name


def test_every_named_data_set_is_valid(schema: dict[str, Any]) -> None:
    for name, path in config_files("datasets").items():
        whole = {**parse_yaml(STARTER), "dataset": {"name": name, **read_yaml(path)}}
        assert not problems(schema, whole), name


def test_resolved_experiments_are_valid(schema: dict[str, Any], tiny: Path) -> None:
    for name in ("quickstart", "cub200_mlrc", "papers/000_sgsl/table1_cub200", tiny):
        assert not problems(schema, load_experiment(name).plain()), name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"protocl": "quick"}, "'protocl' was unexpected"),
        ({"seed": -1}, "less than the minimum of 0"),
        ({"dataset": {"name": "x", "reader": "folder", "path": "y"}}, "not valid under any"),
        ({"model": {"trunk": "conv4", "pooling": "mean"}}, "not valid under any"),
        ({"protocol": {"base": "quick_one_search", "trainings": 1}}, "not valid under any"),
        (
            {"protocol": {"base": "quick_one_search", "search": {"trials": "many"}}},
            "not valid under any",
        ),
        ({"methods": []}, "not valid under any"),
        ({"methods": [{"loss": "ArcFaceLoss", "samples_per_clas": 2}]}, "not valid under any"),
        ({"methods": [{"loss": "ArcFaceLoss", "phase2": {"lr_factor": {"low": 1}}}]}, "not valid"),
        ({"slurm": {"hours": 0}}, "less than or equal to the minimum of 0"),
    ],
)
def test_mistakes_are_found(change: dict[str, Any], message: str, schema: dict[str, Any]) -> None:
    starter = parse_yaml(STARTER)
    assert not problems(schema, starter)
    found = problems(schema, {**starter, **change})
    assert any(message in text for text in found), found


def test_what_is_missing_is_found(schema: dict[str, Any]) -> None:
    starter = parse_yaml(STARTER)
    del starter["model"]
    assert problems(schema, starter)
    assert not problems(schema, {**starter, "base": "quickstart"})


def test_every_key_is_described(schema: dict[str, Any]) -> None:
    for name, definition in schema["definitions"].items():
        for key, value in definition["properties"].items():
            assert value["description"].endswith("."), f"{name}.{key}"
            assert len(value["description"]) > 10, f"{name}.{key}"
            assert "\n" not in value["description"], f"{name}.{key}"


def test_names_are_offered(
    schema: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = schema["definitions"]["Experiment"]["properties"]["dataset"]["anyOf"][0]["enum"]
    assert {"glyphs", "cub200"} <= set(offered)
    own = tmp_path / "configs" / "datasets" / "birds.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("reader: image_folder\npath: birds\n")
    mine = json_schema(tmp_path)["definitions"]["Experiment"]["properties"]["dataset"]
    assert "birds" in mine["anyOf"][0]["enum"]


def test_the_starter_names_a_schema_that_it_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    yaml, file = tmp_path / "mine.yaml", tmp_path / SCHEMA
    write_starter(yaml)
    first = yaml.read_text().splitlines()[0]
    assert first == f"# yaml-language-server: $schema={file.name}"
    written = json.loads(file.read_text())
    assert not problems(written, read_yaml(yaml))
    monkeypatch.chdir(tmp_path)
    print_listing("schema")
    assert json.loads(capsys.readouterr().out) == written
