"""Folders of the checkout."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CONFIGS = ROOT / "configs"
#: Values and gradients of losses and metrics, computed by others.
GOLDEN = ROOT / "tests" / "golden" / "golden.json"
SUPPORT = Path(__file__).parent
#: A whole experiment that takes seconds; overrides change it.
TINY = SUPPORT / "tiny.yaml"
