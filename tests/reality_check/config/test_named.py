"""The short forms of a data set: a name, a folder, a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.refusals import refused

from reality_check.cli.embed import _expand_dataset
from reality_check.cli.starter import write_starter
from reality_check.config import compose, load_experiment
from reality_check.config.yaml_text import dump_yaml

REST = {"model": "conv4", "protocol": "quick_one_search", "methods": ["contrastive"]}
FORMS = {
    "./photos": "image_folder",
    "photos.v2": "image_folder",
    "photos.zip": "image_folder",
    "photos.csv": "csv",
    "photos.npz": "tensors",
    "saved": "tensors",
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in ("photos/a", "photos.v2", "saved", "glyphs", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("photos.zip", "photos.csv", "photos.npz", "saved/dataset_info.json", "notes.txt"):
        (tmp_path / file).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("form", "reader"), FORMS.items())
def test_a_folder_or_a_file_is_a_data_set_everywhere(
    here: Path, monkeypatch: pytest.MonkeyPatch, form: str, reader: str
) -> None:
    expected = {
        "name": form.strip("./").partition(".")[0],
        "reader": reader,
        "path": str(Path(form)),
    }
    of_yaml = compose({"name": "e", "dataset": form, **REST}).dataset
    of_override = compose({"name": "e", "dataset": "glyphs", **REST}, [f"dataset={form}"]).dataset
    based = compose({"name": "e", "dataset": {"base": form, "name": "x"}, **REST}).dataset
    assert of_yaml == of_override == based.model_copy(update={"name": expected["name"]})
    assert of_yaml.plain().items() >= expected.items()
    size = {"size": 256} if reader == "image_folder" else {}
    assert _expand_dataset(form) == {**expected, **size}
    (here / "e.yaml").write_text(dump_yaml({"dataset": form, **REST}))
    monkeypatch.chdir("elsewhere")
    beside = load_experiment(here / "e.yaml").dataset
    assert beside.path == str(here / form)  # type: ignore[union-attr]


def test_a_known_name_is_not_the_folder_of_that_name() -> None:
    assert compose({"name": "e", "dataset": "glyphs", **REST}).dataset.reader == "glyphs"
    assert _expand_dataset("glyphs")["reader"] == "glyphs"
    assert compose({"name": "e", "dataset": "./glyphs", **REST}).dataset.reader == "image_folder"


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("./nothing", ["no dataset named './nothing', no folder of that path and no file (.npz"]),
        ("notes.txt", ["no dataset named 'notes.txt'", ".csv"]),
        ("glyph", ["mean 'glyphs'?"]),
        ("${NOT_SET}/x", ["NOT_SET, which is not set"]),
    ],
)
def test_what_is_neither_is_one_sentence(form: str, words: list[str]) -> None:
    with refused(*words):
        compose({"name": "e", "dataset": form, **REST})
    with refused(*words):
        _expand_dataset(form)


def test_a_start_on_features_takes_the_same_forms(here: Path) -> None:
    write_starter(here / "new.yaml", "./saved")
    assert load_experiment(here / "new.yaml").dataset.reader == "tensors"
    for form in ("photos", "nothing.npz", "notes.txt"):
        with refused(form):
            write_starter(here / "other.yaml", form)
