"""Each check can fail: a loss broken in one way fails the check meant for it, and none like it."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from collections import defaultdict
from pathlib import Path

import pytest
from support import broken_losses
from support.pace import slowness
from support.paths import ROOT
from support.preloaded import Started

from pml_extensions.testing import LossContract

FILE = Path(broken_losses.__file__)
TOYS = {name: toy for name, toy in vars(broken_losses).items() if name.startswith("Test")}


def check(words: tuple[str, ...]) -> int:
    return pytest.main(list(words))


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The checks that each class of the file failed, in a pytest of their own."""
    folder = tmp_path_factory.mktemp("toys")
    report, log = folder / "report.xml", folder / "log"
    words = ["-q", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist", f"--junitxml={report}"]
    environment = {**os.environ, "PYTEST_ADDOPTS": ""}
    done = Started(ROOT, log, *words, str(FILE), program=check, environment=environment)
    assert done.wait(600 * slowness()) == 1, done.said() + done.complaints()
    failed: dict[str, set[str]] = defaultdict(set)
    for case in ET.parse(report).iter("testcase"):
        names = failed[case.attrib["classname"].rpartition(".")[2]]
        if case.find("failure") is not None or case.find("error") is not None:
            names.add(case.attrib["name"])
    return dict(failed)


@pytest.mark.slow
@pytest.mark.xdist_group("broken_losses")
@pytest.mark.parametrize("name", TOYS)
def test_a_broken_loss_fails_the_check_meant_for_it(
    failures: dict[str, set[str]], name: str
) -> None:
    assert failures[name] == set(TOYS[name].fails.split())


def test_every_check_is_failed_by_some_loss() -> None:
    checks = {name for name in dir(TOYS["TestCorrect"]) if name.startswith("test_")}
    failed = {check.partition("[")[0] for toy in TOYS.values() for check in toy.fails.split()}
    assert checks == failed


def test_an_opt_out_must_name_a_check() -> None:
    with pytest.raises(TypeError, match="did you mean 'test_inputs_are_left_alone'"):
        type("Wrong", (LossContract,), {"exempt": {"test_inputs_left_alone": "typo"}})
