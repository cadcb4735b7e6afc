"""Shipped experiments, each read once per process: most of a test's time would go into its YAML."""

from __future__ import annotations

from functools import cache
from typing import Any

from reality_check.config import Experiment, load_experiment
from reality_check.utils.config_files import shipped_files


@cache
def shipped(name: str, *overrides: str) -> Experiment:
    """Return the experiment that ships under this name; nobody changes it."""
    return load_experiment(name, list(overrides))


#: The suites that ship with the package, and the other files of configs/experiments.
SUITES = ("four_features", "four_subsets")
EXPERIMENTS = [name for name in shipped_files("experiments") if name not in SUITES]


#: One method with one trial and two reproductions on two folds, as a mapping.
CAMPAIGN: dict[str, Any] = {
    "name": "tiny",
    "dataset": "glyphs",
    "model": {"base": "conv4", "arguments": {"width": 4}},
    "protocol": {
        "base": "quick_one_search",
        "split": {"folds": 2},
        "training": {"batch_size": 4, "embedding_size": 4},
        "search": {"trials": 1},
        "reproductions": 2,
    },
    "methods": ["contrastive"],
    "device": "cpu",
}
