"""The functions of :mod:`reality_check.statistics`, by the name that they first had."""

from reality_check.statistics import *  # noqa: F403
from reality_check.statistics import __all__ as __all__
