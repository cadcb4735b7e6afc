"""Shipped experiments, each read once per process: most of a test's time would go into its YAML."""

from __future__ import annotations

from functools import cache

from reality_check.config import Experiment, load_experiment


@cache
def shipped(name: str, *overrides: str) -> Experiment:
    """Return the experiment that ships under this name; nobody changes it."""
    return load_experiment(name, list(overrides))
