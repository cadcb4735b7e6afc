"""Typed configuration: from YAML and overrides to an :class:`Experiment`."""

from reality_check.config.compose import compose, load_experiment
from reality_check.config.differences import differing_keys
from reality_check.config.method import Method
from reality_check.config.model import Model
from reality_check.config.named import named_protocol
from reality_check.config.protocol import Protocol
from reality_check.config.schema import Experiment
from reality_check.config.training import Training
from reality_check.config.values import Choices, Range
from reality_check.utils.config_files import config_files, configs_root

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
