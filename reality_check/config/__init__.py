"""Typed configuration: from YAML and overrides to an :class:`Experiment`."""

from reality_check.config.compose import (
    compose,
    config_files,
    differing_keys,
    load_experiment,
    named_protocol,
)
from reality_check.config.model import Model
from reality_check.config.schema import Experiment, Method, Protocol
from reality_check.config.training import Training
from reality_check.config.values import Choices, Range
from reality_check.utils.config_files import configs_root

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
