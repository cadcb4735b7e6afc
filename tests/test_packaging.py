"""The distribution: every package and every YAML is in the wheel, and the wheel works alone."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


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


@pytest.mark.slow
def test_a_wheel_has_all_configs_and_runs_outside_the_checkout(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip"]
    build = [*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, timeout=300)
    wheel = next(tmp_path.glob("*.whl"))
    names = set(zipfile.ZipFile(wheel).namelist())
    for file in (ROOT / "configs").rglob("*.yaml"):
        assert f"reality_check/configs/{file.relative_to(ROOT / 'configs').as_posix()}" in names
    site, empty = tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    install = [*pip, "install", "--quiet", "--no-deps", "--target", str(site), str(wheel)]
    subprocess.run(install, check=True, timeout=300)
    code = (
        "import reality_check as rc; from pathlib import Path;"
        "print(Path(rc.__file__).parent); print(len(rc.load_experiment('quickstart').methods))"
    )
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=empty,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    folder, methods = done.stdout.split()
    assert Path(folder) == site / "reality_check"
    assert methods == "4"
