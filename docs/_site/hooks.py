"""What MkDocs needs to show pages that are written for readers of the repository.

Pages link to files outside ``docs/`` (a YAML, a test), hold TeX, and know nothing of the API pages:
here such files are put on the site, formulas become MathML, which browsers draw without scripts or
fonts from elsewhere, and a page is made for each public package.
"""

from __future__ import annotations

import html
import posixpath
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File

#: Page of the site, and the modules whose ``__all__`` is shown there.
API = {
    "reality_check": ("reality_check",),
    "data": ("reality_check.data",),
    "losses": ("pml_extensions.losses",),
    "modules": ("pml_extensions.modules",),
    "evaluation": ("pml_extensions.evaluation",),
    "functional": ("pml_extensions.functional",),
    "distributed": ("pml_extensions.distributed",),
    "sentence_transformers": ("pml_extensions.sentence_transformers",),
    "testing": ("pml_extensions.testing",),
}
_LINK = re.compile(r"(?<=\]\()([^)\s#]+)(?=[)#])")
_FORMULA = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.S)
#: A link that shows the name of a file, and a bar of a norm as the converter writes it.
_NAMED = re.compile(r"\[(?:[\w/]+/)?\w+\.md\](?=\(([\w./]+\.md)[)#])")
_BAR = re.compile(r"<mo[^>]*>(&#x02016;|&#x0007C;)</mo>")
_FENCED = re.compile(r"^(```|~~~).*?^\1", re.M | re.S)


def on_config(config: Any) -> Any:
    """Add the page of each loss to the navigation, after the page of all losses."""
    all_losses = "losses/README.md"
    pages = {
        f"losses/{page.name}": page.read_text("utf-8").partition("\n")[0].removeprefix("# ")
        for page in sorted(Path(config.docs_dir, "losses").glob("*.md"))
    }
    (section,) = (part for tab in config.nav for part in tab.values() if all_losses in str(part))
    each = [{title: page} for page, title in pages.items() if page != all_losses]
    section.insert(1, {"Each loss": each})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the API pages, and every file of the repository that a page links to."""
    for name, modules in API.items():
        files.append(File.generated(config, f"api/{name}.md", content=api_page(modules)))
    root = Path(config.config_file_path).parent
    for page in list(files.documentation_pages()):
        for outside in outside_links(page.content_string, page.src_uri):
            target = f"{outside}.txt" if (root / outside).suffix == ".py" else outside
            if (root / outside).is_file() and files.get_file_from_path(target) is None:
                files.append(File.generated(config, target, abs_src_path=str(root / outside)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Lead links to files outside ``docs/`` to their copies; call pages by their titles."""
    here = posixpath.dirname(page.file.src_uri)
    titles = dict(_titles(config.nav))

    def named(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(here, match[1]))
        return f"[{titles[target]}]" if target in titles else match[0]

    def moved(match: re.Match[str]) -> str:
        outside = _outside(match[1], page.file.src_uri)
        if outside is None:
            return match[1]
        copy = f"{outside}.txt" if outside.endswith(".py") else outside
        return posixpath.relpath(copy, here or ".")

    return _LINK.sub(moved, _NAMED.sub(named, markdown))


def _titles(nav: Any) -> Iterator[tuple[str, str]]:
    """Yield page and title of the navigation, at any depth."""
    for entry in nav if isinstance(nav, list) else [nav]:
        for title, below in entry.items() if isinstance(entry, dict) else ():
            if isinstance(below, str):
                yield below, title
            else:
                yield from _titles(below)


def on_page_content(content: str, **_: Any) -> str:
    """Turn TeX into MathML."""
    return _FORMULA.sub(_mathml, content)


def api_page(modules: tuple[str, ...]) -> str:
    """The Markdown of a page on all public names of some modules."""
    lines = [f"# {', '.join(modules)}", ""]
    for module in modules:
        imported = import_module(module)
        lines += [_summary(imported.__doc__ or ""), ""]
        for name in public_names(imported):
            lines += [f"::: {module}.{name}", ""]
    return "\n".join(lines)


def public_names(module: ModuleType) -> list[str]:
    """What a module offers: its ``__all__``, else the classes and functions written in it."""
    own = [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__ and not name.startswith("_")
    ]
    names = [name for name in getattr(module, "__all__", own) if not name.startswith("__")]
    return sorted(names, key=str.lower)


def _summary(docstring: str) -> str:
    return docstring.strip().partition("\n\n")[0].replace("\n", " ")


def outside_links(markdown: str, page: str) -> set[str]:
    """The files, relative to the repository, that a page links to outside ``docs/``."""
    text = _FENCED.sub("", markdown)
    return {path for target in _LINK.findall(text) if (path := _outside(target, page))}


def _outside(target: str, page: str) -> str | None:
    """A link's file relative to the repository if it lies outside ``docs/``."""
    if re.match(r"[a-z]+:", target):
        return None
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
    return None if path.split("/")[0] in ("docs", "..") else path


def _mathml(match: re.Match[str]) -> str:
    tag, text = match[1], html.unescape(match[2]).strip()
    kind = "inline" if tag == "span" else "block"
    formula = convert(text[2:-2].strip(), display=kind)
    # Bars neither grow with what they enclose nor keep their distance from it.
    formula = _BAR.sub(r'<mo stretchy="false" lspace="0" rspace="0">\1</mo>', formula)
    return f'<{tag} class="formula">{formula}</{tag}>'
