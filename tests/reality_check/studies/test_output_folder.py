from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from reality_check.config import Experiment, compose, load_experiment
from reality_check.studies.output_folder import (
    check_same_experiment,
    describe_differences,
    growth,
    load_locked,
    lock_experiment,
    remove_checkpoints,
)
from reality_check.studies.progress import find_folder
from reality_check.utils.errors import UsageError


def experiment(*overrides: str, **changes: Any) -> Experiment:
    raw = {
        "name": "1e5",  # a text that YAML must quote
        "dataset": "glyphs",
        "model": "conv4",
        "protocol": "mlrc",
        "methods": ["contrastive", "normalized_softmax"],
        "code": {"dataset": "12e4567890"},
    }
    return compose({**raw, **changes}, overrides)


def error_of(one: Experiment, folder: Path) -> str:
    with pytest.raises(UsageError) as caught:
        check_same_experiment(one, folder)
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message
    return message


def test_a_new_or_empty_folder_takes_any_experiment(tmp_path: Path) -> None:
    assert not check_same_experiment(experiment(), tmp_path / "new")
    (tmp_path / ".hidden").write_text("")
    assert not check_same_experiment(experiment(), tmp_path)


def test_the_locked_experiment_is_the_same_experiment(tmp_path: Path) -> None:
    lock_experiment(experiment(), tmp_path)
    assert load_locked(tmp_path) == experiment()
    assert check_same_experiment(experiment(), tmp_path)
    assert check_same_experiment(load_locked(tmp_path), tmp_path)
    # Where it runs may change, what is run may not.
    assert check_same_experiment(experiment("device=cpu"), tmp_path)


def test_the_same_images_may_lie_elsewhere(tmp_path: Path) -> None:
    """On another machine, say; whether they are the same is told by their fingerprint."""
    here = {"reader": "tensors", "name": "mine", "path": "/here/images.npz"}
    lock_experiment(experiment(dataset=here), tmp_path)
    there = {**here, "path": "/there/images.npz"}
    assert check_same_experiment(experiment(dataset=there), tmp_path)
    other = experiment(dataset=there, code={"dataset": "another"})
    assert "the images are not the same" in error_of(other, tmp_path)
    assert "dataset.where" in error_of(experiment(dataset={**there, "where": {"set": 1}}), tmp_path)


def test_locking_again_writes_only_what_has_changed(tmp_path: Path) -> None:
    lock_experiment(experiment(), tmp_path)
    before = (tmp_path / "experiment.yaml").stat()
    lock_experiment(experiment(), tmp_path)
    assert (tmp_path / "experiment.yaml").stat().st_ino == before.st_ino
    lock_experiment(experiment("device=cpu"), tmp_path)
    assert load_locked(tmp_path).device == "cpu"


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["seed=1"], ["seed is 0 there and 1 here"]),
        (["protocol.search.trials=8"], ["protocol.search.trials is 50 there and 8 here"]),
        (
            ["protocol.gallery=5"],
            ["protocol.gallery is 0 there and 5 here", "another folder with --out"],
        ),
        (
            ["methods.contrastive.arguments.pos_margin.high=1"],
            ["methods.contrastive.arguments.pos_margin.high is 2.0 there and 1.0 here"],
        ),
        (
            ["methods=[contrastive]"],
            ["methods is ['contrastive', 'normalized_softmax'] there and ['contrastive'] here"],
        ),
        (
            ["protocol.training.tf32=true"],
            ["protocol.training.tf32 is False there and True here"],
        ),
        (["code.dataset=other"], ["images are not the same"]),
        (["code.my_losses=abc"], ["code of my_losses has changed"]),
        (
            ["dataset.seed=1", "dataset.size=64", "seed=2"],
            ["dataset.seed", "dataset.size", "; seed is"],
        ),
    ],
)
def test_another_experiment_is_refused_with_the_keys_that_differ(
    tmp_path: Path, overrides: list[str], parts: list[str]
) -> None:
    lock_experiment(experiment(), tmp_path)
    message = error_of(experiment(*overrides), tmp_path)
    for part in parts:
        assert part in message


@pytest.mark.parametrize("earlier", ["ab" * 32, "sharp-losses 1.0, sha256:abab"])
def test_a_folder_with_fingerprints_of_an_earlier_version_is_read_but_not_continued(
    tmp_path: Path, earlier: str
) -> None:
    """Until commit 1b535f4, fingerprints of own code were of its syntax trees."""
    code = {"dataset": "12e4567890", "my_losses.Mine": earlier}
    lock_experiment(experiment(code=code), tmp_path)
    assert load_locked(tmp_path).code == code
    now = experiment(code={**code, "my_losses.Mine": f"sha256:{'ab' * 32}"})
    message = error_of(now, tmp_path)
    assert "an earlier version recorded the code of my_losses.Mine in another way" in message
    assert "has changed" not in message


def test_a_folder_has_the_version_of_its_format_and_a_newer_one_is_refused(tmp_path: Path) -> None:
    lock_experiment(experiment(), tmp_path)
    file = tmp_path / "experiment.yaml"
    text = file.read_text()
    assert text.count("schema_version: 1\n") == 1
    file.write_text(text.replace("schema_version: 1\n", ""))  # as until commit 1b535f4
    assert load_locked(tmp_path) == experiment()
    for version, words in [
        (
            "2\nnew: 1",
            "is 2, which a newer reality-check wrote: .* up to 1; write pip install",
        ),
        ("yes", "is 'yes', but can only be 1"),
    ]:
        file.write_text(text.replace("version: 1", f"version: {version}"))
        with pytest.raises(UsageError, match=f"{re.escape(str(file))}: schema_version {words}"):
            load_locked(tmp_path)


def test_a_key_that_is_newer_than_the_folder_has_its_default_there(tmp_path: Path) -> None:
    lock_experiment(experiment(), tmp_path)
    file = tmp_path / "experiment.yaml"
    text = file.read_text()
    assert "  gallery: 0\n" in text
    file.write_text(text.replace("  gallery: 0\n", ""))
    assert check_same_experiment(experiment(), tmp_path)
    assert "gallery" in error_of(experiment("protocol.gallery=5"), tmp_path)


def test_a_key_that_is_gone_since_is_left_out_at_its_default(tmp_path: Path) -> None:
    lock_experiment(experiment(), tmp_path)
    file, line = tmp_path / "experiment.yaml", "      compile: false\n"
    text = file.read_text()
    assert line in text
    file.write_text(text.replace(line, f"{line}      fold_batchnorm: false\n"))
    assert load_locked(tmp_path) == load_experiment(file) == experiment()
    assert check_same_experiment(experiment(), tmp_path)
    assert growth(experiment(), tmp_path) == {}
    lock_experiment(load_locked(tmp_path), tmp_path)
    assert file.read_text() == text
    file.write_text(text.replace(line, f"{line}      fold_batchnorm: true\n"))
    said = error_of(experiment(), tmp_path)
    assert said == (
        f"{file}: unknown key 'protocol.training.gpu.fold_batchnorm'; valid keys here: "
        "cuda_graph, channels_last, compile."
    )


def test_many_differences_are_counted(tmp_path: Path) -> None:
    lock_experiment(experiment(), tmp_path)
    changes = [f"protocol.training.{key}=7" for key in ("max_epochs", "patience", "embedding_size")]
    changes += ["seed=7", "protocol.reproductions=7", "dataset.classes=70", "dataset.seed=7"]
    assert "and 2 more" in error_of(experiment(*changes), tmp_path)


def test_a_key_that_one_of_them_lacks_is_not_set_there() -> None:
    said = describe_differences(["dataset.channels"], {"dataset": {}}, {"dataset": {"channels": 3}})
    assert said == "dataset.channels is not set there and 3 here"


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    assert "thesis.tex" in error_of(experiment(), tmp_path)
    assert "is a file" in error_of(experiment(), tmp_path / "thesis.tex")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_folder_that_is_none_of_ours_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no experiment\.yaml.*reality-check run"):
        load_locked(tmp_path)


@pytest.mark.parametrize("results", ["mine.pack", "quickstart/experiment.yaml"])
def test_of_a_folder_of_results_these_are_to_be_named(tmp_path: Path, results: str) -> None:
    (tmp_path / results).parent.mkdir(exist_ok=True)
    (tmp_path / results).touch()
    named = tmp_path / ("*.pack" if results == "mine.pack" else "*")
    with pytest.raises(UsageError, match=re.escape(f"Name what is in it: {named}") + "$"):
        load_locked(tmp_path)


def test_a_pack_is_no_folder_and_has_commands_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine.pack").touch()
    for load in (load_locked, find_folder):
        with pytest.raises(UsageError, match=r"it is a file\. Packs are for report, .*leaderboard"):
            load(tmp_path / "mine.pack")


def test_removing_checkpoints_keeps_the_records(tmp_path: Path) -> None:
    (tmp_path / "fold_0" / "records").mkdir(parents=True)
    for name in ("latest.pt", "best-1-2.pt", "records/curves.csv"):
        (tmp_path / "fold_0" / name).write_text("")
    remove_checkpoints(tmp_path)
    remove_checkpoints(tmp_path / "absent")
    files = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert files == ["curves.csv"]
