"""The distribution: every package and every YAML is in the wheel, and the wheel works alone."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging import metadata
from packaging.requirements import Requirement
from support.paths import ROOT

import reality_check


def test_setup_cfg_lists_every_package() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = set(config["options"]["packages"].split())
    found = {
        file.parent.relative_to(ROOT).as_posix().replace("/", ".")
        for package in ("pml_extensions", "reality_check")
        for file in (ROOT / package).rglob("__init__.py")
    }
    assert listed == found | {"reality_check.configs"}


class Built(NamedTuple):
    """The distribution as it would be published.

    Attributes:
        sdist: the source archive, made from the checkout.
        wheel: made from the source archive, so that what the archive lacks is lacking here.
    """

    sdist: Path
    wheel: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("dist")
    checkout = folder / "checkout"
    leave_out = shutil.ignore_patterns(
        ".*", "build", "dist", "runs", "site", "__pycache__", "*.egg-info"
    )
    shutil.copytree(ROOT, checkout, ignore=leave_out)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), "."]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    return Built(next(folder.glob("*.tar.gz")), next(folder.glob("*.whl")))


@pytest.mark.slow
def test_the_wheel_has_every_file_that_is_used_and_no_other(built: Built) -> None:
    found = {name for name in zipfile.ZipFile(built.wheel).namelist() if ".dist-info/" not in name}
    wanted = {
        file.relative_to(ROOT).as_posix()
        for package in ("pml_extensions", "reality_check")
        for file in (ROOT / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    configs = {file.relative_to(ROOT).as_posix() for file in (ROOT / "configs").rglob("*.yaml")}
    assert len(configs) > 200
    assert found == wanted | {f"reality_check/{name}" for name in configs}


@pytest.mark.slow
def test_the_source_archive_builds_the_package_and_has_no_tests(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "setup.cfg"} <= names
    assert "examples/paper_figures/__main__.py" in names
    assert not [name for name in names if re.match(r"(tests|docs|benchmarks|shared|runs)\b", name)]
    assert not [name for name in names if name.endswith((".pdf", ".pt", ".pth", ".npz", ".db"))]


@pytest.mark.slow
def test_the_metadata_are_valid_and_say_what_setup_cfg_says(built: Built) -> None:
    archive = zipfile.ZipFile(built.wheel)
    folder = next(name for name in archive.namelist() if name.endswith("/METADATA")).partition("/")[
        0
    ]
    found = metadata.Metadata.from_email(archive.read(f"{folder}/METADATA"), validate=True)
    assert found.name == "pml-extensions"
    assert str(found.version) == reality_check.__version__
    assert str(found.requires_python) == ">=3.10"
    assert found.description_content_type == "text/markdown"
    assert found.description is not None
    assert found.description.startswith("# pml-extensions")
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    wanted = {
        Requirement(line) for line in config["options"]["install_requires"].split("\n") if line
    }
    assert {one for one in found.requires_dist or () if one.marker is None} == wanted
    assert set(found.provides_extra or ()) == set(config["options.extras_require"])
    assert f"{folder}/licenses/LICENSE" in archive.namelist()
    points = archive.read(f"{folder}/entry_points.txt").decode()
    assert "reality-check = reality_check.cli.main:main" in points
    assert "Root-Is-Purelib: true" in archive.read(f"{folder}/WHEEL").decode()


@pytest.mark.slow
def test_the_wheel_works_in_a_fresh_environment_and_an_empty_folder(
    built: Built, tmp_path: Path
) -> None:
    fresh, empty = tmp_path / "fresh", tmp_path / "empty"
    empty.mkdir()
    python = [sys.executable, "-m"]
    # This environment's pip serves the fresh one: to install another takes longer than all else.
    subprocess.run([*python, "venv", "--without-pip", str(fresh)], check=True, timeout=300)
    programs = fresh / "bin"
    install = ["install", "--quiet", "--no-compile", "--no-index", "--no-deps", str(built.wheel)]
    into = ["--python", str(programs / "python")]
    # With a folder there that is installed, pip would install nothing.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run([*python, "pip", *into, *install], check=True, timeout=300, env=environment)
    # What it requires is not downloaded: the packages of this environment serve, behind its own.
    site = next(fresh.glob("lib/python*/site-packages"))
    others = [path for path in sys.path if path.endswith("-packages")]
    (site / "others.pth").write_text("\n".join(others))

    def call(*command: str) -> str:
        done = subprocess.run(
            command, cwd=empty, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    names = "reality_check", "pml_extensions"
    where = f"from importlib.util import find_spec; print(*(find_spec(n).origin for n in {names}))"
    assert all(str(site) in path for path in call(str(programs / "python"), "-c", where).split())
    program = str(programs / "reality-check")
    assert call(program, "--version") == f"reality-check {reality_check.__version__}\n"
    assert "quickstart" in call(program, "show", "experiments")
    call(program, "init")
    tiny = ["dataset.classes=40", "dataset.images_per_class=4", "model.arguments.width=4"]
    tiny += ["protocol.training.batch_size=8", "protocol.training.iterations_per_epoch=1"]
    said = call(program, "check", "experiment.yaml", *tiny)
    assert "my_loss (my_losses.MyLoss)" in said
    assert "cost: " in said


def test_the_version_is_a_semantic_one_that_the_changelog_knows() -> None:
    version = reality_check.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?", version)
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## \[(\d\S*)\] - \d{4}-\d\d-\d\d$", changelog, re.M)
    dates = re.findall(rf"^## \[{re.escape(version)}\] - (\S+)$", changelog, re.M)
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f'\nversion: {version}\ndate-released: "{dates[0]}"\n' in citation
    assert released == sorted(released, key=lambda text: [*map(int, text.split("."))], reverse=True)
    sections = re.findall(r"^### (.+)$", changelog, re.M)
    known = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Known limits"}
    assert set(sections) <= known


def test_the_oldest_versions_that_are_tested_are_those_that_are_allowed() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lower_bounds = (
        line.partition(",")[0] for line in config["options"]["install_requires"].split()
    )
    allowed = dict(bound.split(">=") for bound in lower_bounds)
    lines = (ROOT / "tests" / "minimum.txt").read_text(encoding="utf-8").splitlines()
    tested = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    for name, least in allowed.items():
        assert (tested[name] + ".0.0").startswith(f"{least}."), name
