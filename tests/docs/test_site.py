"""The site builds without a warning, has every page and public name, and needs no other host."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from support.imports import import_file
from support.paths import ROOT

pytest.importorskip("mkdocs", reason="MkDocs is not installed: pip install -e '.[docs]'")

TOOLS = ROOT / "docs" / "_site"
#: Attributes by which a page loads something.
LOADS = {("link", "href"), ("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src")}


def load(name: str) -> ModuleType:
    return import_file(TOOLS / f"{name}.py")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return folder


class Loaded(HTMLParser):
    """Collects what a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        relation = dict(attrs).get("rel")
        for name, value in attrs:
            if (tag, name) in LOADS and value and relation not in ("canonical", "prev", "next"):
                self.found.append(value)


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_has_every_page(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        shown = page.relative_to(ROOT / "docs").with_suffix(".html")
        shown = shown.with_name("index.html") if shown.stem == "README" else shown
        assert (site / shown).is_file(), f"{page.name} is not on the site"


@pytest.mark.slow
def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        parser = Loaded()
        parser.feed(page.read_text(encoding="utf-8"))
        others = [target for target in parser.found if re.match(r"(https?:)?//", target)]
        assert not others, f"{page.relative_to(site)} loads {others}"
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//", style.read_text(encoding="utf-8")), style


@pytest.mark.slow
def test_every_public_name_has_an_entry(site: Path) -> None:
    hooks = load("hooks")
    for page, modules in hooks.API.items():
        text = (site / "api" / f"{page}.html").read_text(encoding="utf-8")
        for module in modules:
            for name in hooks.public_names(importlib.import_module(module)):
                assert f'id="{module}.{name}"' in text, f"{module}.{name}"


@pytest.mark.slow
def test_formulas_are_mathml_and_no_tex_or_role_is_left(site: Path) -> None:
    assert "<math" in (site / "losses" / "warped_softmax.html").read_text(encoding="utf-8")
    for page in site.rglob("*.html"):
        text = re.sub(r"<(pre|code|math)\b.*?</\1>", "", page.read_text("utf-8"), flags=re.S)
        left = re.findall(
            r"arithmatex|:(?:class|func|meth|mod|math|data|attr):|\.\. math|\\frac", text
        )
        assert not left, f"{page.relative_to(site)}: {left}"


def test_docstrings_become_markdown() -> None:
    to_markdown = load("docstrings").to_markdown
    assert to_markdown("See :class:`~a.b.C` and :func:`f`.") == (
        'See <autoref optional identifier="a.b.C"><code>C</code></autoref> and '
        '<autoref optional identifier="f"><code>f</code></autoref>.'
    )
    assert to_markdown("with :math:`x_1`") == "with $x_1$"
    assert to_markdown("L is\n\n.. math::\n    a\n    + b\n\nwhere") == (
        "L is\n\n\n$$\na\n+ b\n$$\n\nwhere"
    )
    assert to_markdown("is\n\n.. math:: a + b\n\nwhere") == "is\n\n\n$$\na + b\n$$\n\nwhere"
    assert to_markdown("may be::\n\n    a: 1\n    b: 2\n\nand") == (
        "may be:\n\n```text\na: 1\nb: 2\n```\n\nand"
    )


def test_links_out_of_docs_lead_to_copies() -> None:
    hooks = load("hooks")
    text = "[a](../../configs/methods/x.yaml) [b](../modules.md#c) [d](https://e.org/f)"
    assert hooks.outside_links(text, "losses/hist.md") == {"configs/methods/x.yaml"}


def test_links_that_show_a_file_show_its_title() -> None:
    hooks = load("hooks")
    page = SimpleNamespace(file=SimpleNamespace(src_uri="losses/hist.md"))
    config = SimpleNamespace(nav=[{"Home": "README.md"}, {"All": [{"Heads": "modules.md"}]}])
    text = "[modules.md](../modules.md#c) [x](../modules.md) [README.md](README.md)"
    assert hooks.on_page_markdown(text, page, config) == (
        "[Heads](../modules.md#c) [x](../modules.md) [README.md](README.md)"
    )


def test_norms_have_plain_bars() -> None:
    hooks = load("hooks")
    shown = hooks.on_page_content(r'<span class="arithmatex">\(\lVert x \rVert^k\)</span>')
    assert shown.count('<mo stretchy="false" lspace="0" rspace="0">&#x02016;</mo>') == 2
    assert "<msup>" in shown
