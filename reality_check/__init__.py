"""The reality-check harness: is this loss really better?

>>> import reality_check as rc
>>> experiment = rc.load_experiment("quickstart", overrides=["protocol.search.trials=2"])
>>> experiment.name
'quickstart'

``rc.run(experiment, out_dir)`` runs it and returns :class:`ExperimentResults`, plain data.
"""

from reality_check._version import __version__
from reality_check.config import Experiment, load_experiment
from reality_check.errors import UsageError
from reality_check.results import ExperimentResults, ResultRow
from reality_check.running import report, run

__all__ = [
    "Experiment",
    "ExperimentResults",
    "ResultRow",
    "UsageError",
    "__version__",
    "load_experiment",
    "report",
    "run",
]
