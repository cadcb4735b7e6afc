"""The output folder of a suite, which data sets may join but not leave."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.recorded_runs import experiment
from support.refusals import refused

from reality_check.config import Experiment
from reality_check.config.suite import Suite
from reality_check.studies.output_folder import lock_experiment
from reality_check.studies.progress import find_folder
from reality_check.studies.suite_folder import is_suite, lock_suite, member_folders, suite_name
from reality_check.utils.errors import UsageError


@pytest.fixture(scope="module")
def one() -> Experiment:
    return experiment()


def suite_of(one: Experiment, *names: str, name: str = "some") -> Suite:
    members = {each: one.model_copy(update={"name": each}) for each in names}
    return Suite(name, members)


def lock(suite: Suite, out: Path) -> None:
    """Open the folder of a suite, and refuse nothing in it."""
    with lock_suite(suite, out):
        pass


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


def test_a_new_folder_holds_the_names_in_their_order(one: Experiment, tmp_path: Path) -> None:
    out = tmp_path / "new"
    assert not is_suite(out)
    lock(suite_of(one, "b", "a", "1e5"), out)
    assert is_suite(out)
    assert suite_name(out) == "some"
    # One name is a number in YAML unless it is quoted.
    assert member_folders(out) == [out / "b", out / "a", out / "1e5"]
    assert list(content(out)) == ["suite.yaml"]


def test_it_is_found_by_its_path_and_by_the_name_of_the_suite(
    one: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lock(suite_of(one, "glyphs", "mnist"), Path("runs/some"))
    keys = "model: conv4\nprotocol: quick\nmethods: [quick/contrastive]\n"
    (tmp_path / "some.yaml").write_text(f"suite: [glyphs, mnist]\n{keys}")
    (tmp_path / "other.yaml").write_text(f"suite: [glyphs, mnist]\n{keys}")
    assert find_folder("runs/some") == find_folder("some.yaml") == Path("runs/some")
    with refused("other.yaml has not been run here"):
        find_folder("other.yaml")


def test_the_same_suite_again_changes_nothing(one: Experiment, tmp_path: Path) -> None:
    lock(suite_of(one, "a", "b"), tmp_path)
    before, changed = content(tmp_path), (tmp_path / "suite.yaml").stat().st_mtime_ns
    lock(suite_of(one, "a", "b"), tmp_path)
    assert content(tmp_path) == before
    assert (tmp_path / "suite.yaml").stat().st_mtime_ns == changed


def test_a_data_set_may_join_anywhere(one: Experiment, tmp_path: Path) -> None:
    lock(suite_of(one, "a", "b"), tmp_path)
    lock_experiment(one, tmp_path / "a")
    lock(suite_of(one, "c", "b", "a"), tmp_path)
    assert [folder.name for folder in member_folders(tmp_path)] == ["c", "b", "a"]
    assert (tmp_path / "a" / "experiment.yaml").is_file()


@pytest.mark.parametrize("left", [("a", "b"), ("c", "b"), ("a", "d", "e")])
def test_no_data_set_may_leave(one: Experiment, tmp_path: Path, left: tuple[str, ...]) -> None:
    """A verdict would otherwise be about the data sets that its author likes."""
    lock(suite_of(one, "a", "b", "c"), tmp_path)
    for name in "abc":
        lock_experiment(one, tmp_path / name)
    before = content(tmp_path)
    (gone, *_) = [name for name in "abc" if name not in left]
    with refused(str(tmp_path), f"holds a suite with {gone} too", "add it, or name a new --out"):
        lock(suite_of(one, *left), tmp_path)
    assert content(tmp_path) == before


def test_folders_of_something_else(one: Experiment, tmp_path: Path) -> None:
    alone, foreign = tmp_path / "alone", tmp_path / "foreign"
    lock_experiment(one, alone)
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("mine")
    (tmp_path / "file").write_text("")
    suite, before = suite_of(one, "a", "b"), content(tmp_path)
    with refused("alone holds one experiment, not a suite; name a new --out"):
        lock(suite, alone)
    with refused("foreign"):
        lock(suite, foreign)
    with refused("file is a file"):
        lock(suite, tmp_path / "file")
    assert content(tmp_path) == before
    assert not any(map(is_suite, (alone, foreign, tmp_path / "file")))


def test_hidden_files_are_no_obstacle(one: Experiment, tmp_path: Path) -> None:
    (tmp_path / ".hidden").write_text("")
    lock(suite_of(one, "a", "b"), tmp_path)
    assert is_suite(tmp_path)


def test_an_experiment_is_the_only_member_of_its_folder(one: Experiment, tmp_path: Path) -> None:
    lock_experiment(one, tmp_path)
    assert not is_suite(tmp_path)
    assert member_folders(tmp_path) == [tmp_path]


def test_a_refused_addition_changes_nothing(one: Experiment, tmp_path: Path) -> None:
    lock(suite_of(one, "a", "b"), tmp_path)
    before = content(tmp_path)
    with refused("odd"), lock_suite(suite_of(one, "a", "b", "c"), tmp_path):
        raise UsageError("odd")
    assert content(tmp_path) == before


def test_what_was_never_begun_may_leave(one: Experiment, tmp_path: Path) -> None:
    lock(suite_of(one, "a", "b", "typo"), tmp_path)
    lock(suite_of(one, "a", "b", "right"), tmp_path)
    assert [folder.name for folder in member_folders(tmp_path)] == ["a", "b", "right"]
