"""The documentation is true: its links resolve, its pages name every parameter.

A block of Python that is one call of ``losses.Something(...)`` is a signature: it is compared here
and not run by test_examples.py.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pytorch_metric_learning.losses import BaseMetricLossFunction
from support.paths import ROOT

from pml_extensions import losses
from pml_extensions._shared.base_losses import ProxyLoss

DOCS = ROOT / "docs"
AT_THE_ROOT = [ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING")]
PAGES = [*AT_THE_ROOT, *sorted(DOCS.rglob("*.md"))]
BlocksOf = Callable[[Path], list[Any]]
LOSSES = {
    name: thing
    for name, thing in vars(losses).items()
    if name in losses.__all__ and issubclass(thing, BaseMetricLossFunction)
}
every_page = pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix()
)
PROXY_LOSSES = [name for name, cls in LOSSES.items() if issubclass(cls, ProxyLoss)]
every_loss = pytest.mark.parametrize("name", LOSSES)
every_proxy_loss = pytest.mark.parametrize("name", PROXY_LOSSES)


def signature(block: Any) -> ast.Call | None:
    """Return the call if the block is one of PML's signatures, ``losses.Something(...)``."""
    if block.language != "python" or not block.code.startswith("losses."):
        return None
    body = ast.parse(block.code).body
    call = body[0].value if len(body) == 1 and isinstance(body[0], ast.Expr) else None
    return call if isinstance(call, ast.Call) else None


@every_page
def test_links_resolve(page: Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        to = (page.parent / path).resolve() if path else page
        assert to.exists(), f"{page.name} links to {target}, which does not exist"
        assert ROOT in to.parents, f"{page.name} links to {target}, outside the repository"
        if anchor:
            assert anchor in anchors(to), (
                f"{page.name} links to {target}, which has no such heading"
            )


def links(page: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page)):
        if not re.match(r"[a-z]+:", target):
            yield target


def anchors(page: Path) -> set[str]:
    """Return what GitHub makes of the headings: lower case, no punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ +(.*)$", without_code(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def without_code(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def page_of(name: str) -> Path:
    module = LOSSES[name].__module__.rpartition(".")[2]
    return DOCS / "losses" / f"{module.removesuffix('_loss')}.md"


def parameters(cls: type, *without: str) -> dict[str, inspect.Parameter]:
    found = inspect.signature(cls).parameters
    return {name: found[name] for name in found if name not in without}


def documented(page: Path) -> set[str]:
    """Return the names in bold that start an item of a list, several if a comma follows."""
    text = without_code(page).replace("\\", "")
    items = re.findall(r"^ *[*-] ((?:\*\*\**\w+\*\*(?:,\s+)?)+)", text, re.M)
    return {name for item in items for name in re.findall(r"\w+", item)}


@every_loss
def test_each_loss_has_a_page_that_names_every_parameter(name: str) -> None:
    lacking = set(parameters(LOSSES[name], "kwargs")) - documented(page_of(name))
    assert not lacking, f"{page_of(name).name} does not document {sorted(lacking)}"


@every_loss
def test_each_page_shows_the_signature(name: str, blocks_of: BlocksOf) -> None:
    (call,) = filter(None, map(signature, blocks_of(page_of(name))))
    assert ast.unparse(call.func) == f"losses.{name}"
    shown = {ast.unparse(argument): inspect.Parameter.empty for argument in call.args}
    shown |= {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg}
    expected = {n: p.default for n, p in parameters(LOSSES[name], "kwargs").items()}
    assert list(shown.items()) == list(expected.items())
    assert any(keyword.arg is None for keyword in call.keywords)  # **kwargs


def test_what_proxy_losses_share_is_documented_once() -> None:
    lacking = set(parameters(ProxyLoss, "num_classes", "embedding_size", "phase", "kwargs"))
    lacking |= {"reducer", "weight_init_func", "weight_regularizer", "embedding_regularizer"}
    assert not lacking - documented(DOCS / "many_classes.md")
    for name in PROXY_LOSSES:
        assert "many_classes.md#parameters" in page_of(name).read_text(encoding="utf-8")


@every_proxy_loss
def test_each_page_names_its_sub_losses_and_phases(name: str) -> None:
    items = re.split(r"^\* ", page_of(name).read_text(encoding="utf-8"), flags=re.M)
    by_name = {item.split("**")[1]: item.partition("\n\n")[0] for item in items if "**" in item}
    assert set(LOSSES[name].sub_losses) <= set(by_name)
    phased = {name for name, item in by_name.items() if "Can change by" in item}
    assert phased == set(LOSSES[name].phase_checks)
