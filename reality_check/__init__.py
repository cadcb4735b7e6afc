"""The reality-check harness: is this loss really better?

>>> import reality_check as rc
>>> experiment = rc.load_experiment("quickstart", overrides=["protocol.search.trials=8"])
>>> experiment.name
'quickstart'

``rc.run(experiment, out_dir)`` runs it and returns :class:`ExperimentResults`, plain data;
``rc.load_results(out_dir)`` reads them again later, ``rc.load_network(out_dir, method)`` a trained
network, and ``rc.track(out_dir, ["mlflow"])`` sends its trials to a tracker.
``rc.compare(table)`` judges trials that were made elsewhere. ``rc.run_suite(suite, out_dir)`` does
the same on several data sets (``rc.load_suite``).
"""

from __future__ import annotations

import os
import sys

if sys.argv[:1] == ["-m"] and sys.path[0] == os.getcwd():
    # `python -m reality_check` puts the working folder first, so that a random.py in it would
    # replace Python's. Move it to the end.
    sys.path.append(sys.path.pop(0))

from importlib import import_module
from typing import TYPE_CHECKING, Any

from reality_check._version import __version__
from reality_check.utils.errors import UsageError

if TYPE_CHECKING:
    from reality_check.api import load_network, load_results, run, run_suite, track
    from reality_check.config import Experiment, load_experiment
    from reality_check.config.described import Description, describe
    from reality_check.config.suite import Suite, load_suite
    from reality_check.evaluation.trained_network import TrainedNetwork
    from reality_check.launch.parallelism import Parallelism
    from reality_check.report.compared import compare
    from reality_check.results import (
        ExperimentResults,
        MethodRecords,
        Record,
        ResultRow,
        SuiteResults,
    )

__all__ = [
    "Description",
    "Experiment",
    "ExperimentResults",
    "MethodRecords",
    "Parallelism",
    "Record",
    "ResultRow",
    "Suite",
    "SuiteResults",
    "TrainedNetwork",
    "UsageError",
    "__version__",
    "compare",
    "describe",
    "load_experiment",
    "load_network",
    "load_results",
    "load_suite",
    "run",
    "run_suite",
    "track",
]

#: Imported when first used: torch and Optuna take seconds, and `reality-check --help` needs none.
_HOMES = {
    "Experiment": "config",
    "load_experiment": "config",
    "Description": "config.described",
    "describe": "config.described",
    "ExperimentResults": "results",
    "MethodRecords": "results",
    "Record": "results",
    "ResultRow": "results",
    "Suite": "config.suite",
    "SuiteResults": "results",
    "TrainedNetwork": "evaluation.trained_network",
    "Parallelism": "launch.parallelism",
    "compare": "report.compared",
    "load_network": "api",
    "load_results": "api",
    "load_suite": "config.suite",
    "run": "api",
    "run_suite": "api",
    "track": "api",
}


if not TYPE_CHECKING:  # with __getattr__, type checkers would accept misspelled names

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value  # so that this function is not called again
        return value
