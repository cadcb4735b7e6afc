"""The first page shows what the commands print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.paths import DOCS

from reality_check.cli import main as cli

PAGE = DOCS / "start.md"


def test_what_init_and_check_print_is_what_the_page_shows(
    blocks_of: Callable[[Path], list[Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    after_init, after_check, _ = [b.code for b in blocks_of(PAGE) if b.language == "text"]
    assert cli.main(["init"]) == 0
    assert capsys.readouterr().out == after_init
    smaller = ["dataset.images_per_class=2", "protocol.training.iterations_per_epoch=1"]
    assert cli.main(["check", "experiment.yaml", *smaller]) == 0
    said = capsys.readouterr().out.replace("480 images", "5760 images").splitlines()
    *first, dots, last = after_check.splitlines()
    assert dots == "..."
    assert said[: len(first)] == first
    assert said[-1].startswith(last)
