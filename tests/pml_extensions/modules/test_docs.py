"""The examples of docs/modules.md run as printed, but for downloads and the size of images."""

from __future__ import annotations

import importlib
import re

import pytest
from support.paths import DOCS

PAGE = (DOCS / "modules.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example(number: int) -> None:
    code = EXAMPLES[number]
    if "torchvision" in code:
        try:
            importlib.import_module("torchvision")
        except (ImportError, RuntimeError, AttributeError) as error:
            pytest.skip(f"needs torchvision (the extra 'vision'): {error}")
    code = code.replace('weights="IMAGENET1K_V1"', "weights=None").replace("224, 224", "64, 64")
    exec(code, {})


def test_every_public_name_is_on_the_page() -> None:
    modules = importlib.import_module("pml_extensions.modules")
    assert EXAMPLES
    for name in [*modules.__all__, *modules.HEAD_PRESETS]:
        assert f"`{name}" in PAGE or f"## {name}" in PAGE, name
