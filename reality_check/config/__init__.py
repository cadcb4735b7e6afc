"""Typed configuration: from YAML and overrides to an :class:`Experiment`."""

from reality_check.config.compose import (
    compose,
    config_files,
    configs_root,
    differing_keys,
    load_experiment,
    named_protocol,
)
from reality_check.config.schema import Experiment, Method, Model, Protocol, Training
from reality_check.config.values import Choices, Range

__all__ = [
    "Choices",
    "Experiment",
    "Method",
    "Model",
    "Protocol",
    "Range",
    "Training",
    "compose",
    "config_files",
    "configs_root",
    "differing_keys",
    "load_experiment",
    "named_protocol",
]
