from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from support.made_up_results import LEVELS, RUNS, make_results, with_other_metrics, with_queries

from reality_check.report.writing import write_report
from reality_check.results import ExperimentResults


@pytest.fixture
def queried(finished: ExperimentResults) -> ExperimentResults:
    """The finished experiment, with the scores of every query."""
    return with_queries(finished)


@pytest.fixture
def asked(finished: ExperimentResults) -> ExperimentResults:
    """The finished experiment, which asked for four more metrics; of NMI there are no values."""
    return with_other_metrics(finished)


@pytest.fixture
def results() -> ExperimentResults:
    return make_results()


@pytest.fixture(scope="session")
def build() -> Any:
    """The factory itself, for other numbers of reproductions."""
    return make_results


@pytest.fixture(scope="session")
def drawn_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the default experiment's report, with all figures, for tests that read it."""
    folder = tmp_path_factory.mktemp("report") / "out"
    write_report(make_results(), folder)
    return folder


@pytest.fixture
def finished() -> ExperimentResults:
    """Every method has all its reproductions, and nothing deviates."""
    whole = make_results(dict.fromkeys(LEVELS, RUNS))
    return dataclasses.replace(whole, protocol="mlrc", deviations=())
