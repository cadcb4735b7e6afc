"""The page by itself: landmarks, headings, names, contrast, and what its script may do."""

from __future__ import annotations

import base64
import hashlib
import io
import itertools
import re
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from reality_check.report.render.html import report_html, sort_value
from reality_check.report.sections.blocks import Gallery, Section


@pytest.fixture(scope="module")
def page(drawn_report: Path) -> str:
    return (drawn_report / "report.html").read_text(encoding="utf-8")


def tags(page: str, name: str) -> list[str]:
    return re.findall(rf"<{name}\b[^>]*>", page)


def test_landmarks_are_there_once_and_named(page: str) -> None:
    for name in ("header", "nav", "main", "footer", "h1"):
        assert len(tags(page, name)) == 1, name
    assert 'aria-label="Contents"' in tags(page, "nav")[0]
    body = page[page.index("<body>") :]
    assert body.startswith('<body><a href="#main" class="skip">'), "the first stop of the keyboard"
    for section in tags(page, "section"):
        (heading,) = re.findall(r'aria-labelledby="([^"]+)"', section)
        assert f'<h2 id="{heading}"' in page


def test_headings_step_down_one_level_at_a_time(page: str) -> None:
    levels = [int(level) for level in re.findall(r"<h([1-6])\b", page)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_the_contents_lead_to_every_section_in_order(page: str) -> None:
    links = re.findall(r'href="#([^"]+)"', page[page.index("<nav") : page.index("</nav>")])
    assert links == re.findall(r'<section [^>]*?id="([^"]+)"', page)
    assert links[:3] == ["overview", "box", "comparison"], "result and deviations first"


def test_every_table_says_what_it_is(page: str) -> None:
    assert len(tags(page, "caption")) == len(tags(page, "table")) > 9
    for head in tags(page, "th"):
        assert re.search(r'scope="(col|row)"', head)
    for label in re.findall(r'<div class="scroll"[^>]*>', page):
        assert 'tabindex="0"' in label
        assert re.search(r'aria-label="[^"]+"', label)


def test_controls_that_need_the_script_are_hidden_without_it(page: str) -> None:
    for control in (*tags(page, "form"), *re.findall(r"<button [^>]*id=[^>]*>", page)):
        assert 'hidden=""' in control
    assert page.count('name="category"') == 3
    assert page.count('name="metric"') == 3
    assert "hidden" not in "".join(tags(page, "tr") + tags(page, "td") + tags(page, "details"))


def test_only_the_page_s_own_script_may_run(page: str) -> None:
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', page)
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy
    for word in ("fetch(", "XMLHttpRequest", "innerHTML", "eval(", "import(", "WebSocket"):
        assert word not in script


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("25.25 ± 0.13", 25.25),
        ("−0.50 to 1.20", -0.5),
        ("-15.00", -15.0),
        ("1 h 7 min", 4020.0),
        ("2 d 3 h", 183600.0),
        ("8.1 s", 8.1),
        ("3 of 10", 3.0),
        ("8 (nothing to search)", 8.0),
        ("1e-05", 1e-5),
        ("40.60 (4 trials)", 40.6),
        ("—", None),
        ("", None),
        ("not finite", None),
    ],
)
def test_cells_are_sorted_by_their_first_number(text: str, value: float | None) -> None:
    assert sort_value(text) == value


def test_a_bound_is_sorted_before_the_number_itself() -> None:
    bound = sort_value("< 0.001")
    assert bound is not None
    assert 0.00099 < bound < 0.001


# -- colours ---------------------------------------------------------------------------------------


def themes() -> dict[str, dict[str, str]]:
    """The colours of each theme, out of the style sheet."""
    style = resources.files("reality_check.report.render").joinpath("style.css").read_text("utf-8")
    found = {
        "light": re.search(r"^:root \{(.*?)\}", style, flags=re.S | re.M),
        "dark": re.search(r'^:root\[data-theme="dark"\] \{(.*?)\}', style, flags=re.S | re.M),
        "dark by preference": re.search(
            r'^  :root:not\(\[data-theme="light"\]\) \{(.*?)\}', style, flags=re.S | re.M
        ),
        "print": re.search(
            r"^  :root, :root\[data-theme\], .*? \{(.*?)\}", style, flags=re.S | re.M
        ),
    }
    colours = {}
    for name, block in found.items():
        assert block is not None, name
        colours[name] = dict(re.findall(r"--(\w+): (#\w+);", block[1]))
    return colours


def contrast(first: str, second: str) -> float:
    """Contrast ratio after WCAG 2.1."""

    def luminance(colour: str) -> float:
        digits = colour[1:] if len(colour) == 7 else "".join(2 * c for c in colour[1:])
        parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)


def test_both_ways_to_the_dark_theme_are_the_same() -> None:
    assert themes()["dark"] == themes()["dark by preference"]


@pytest.mark.parametrize("theme", ["light", "dark", "print"])
def test_text_can_be_told_from_its_ground(theme: str) -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    colours = themes()[theme]
    for text in ("ink", "faint", "link", "serious", "minor", "clean"):
        for ground in ("ground", "raised"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)


# -- galleries -------------------------------------------------------------------------------------


def test_large_galleries_are_compact_and_small_ones_as_they_are() -> None:
    def png(pixels: np.ndarray) -> bytes:
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, "PNG")
        return stream.getvalue()

    noise = np.random.default_rng(0).integers(0, 255, (300, 300, 3), dtype=np.uint8)
    large, small = png(noise), png(noise[:50, :50])
    shown = (Gallery("a", "a", "One.", large), Gallery("b", "b", "Two.", small))
    page = report_html("x", [Section("galleries", "Nearest neighbours", shown)])
    kinds = re.findall(r'src="data:image/(\w+);base64,([^"]+)" alt="(\w+\.)"', page)
    assert [(kind, alt) for kind, _, alt in kinds] == [("webp", "One."), ("png", "Two.")]
    assert base64.b64decode(kinds[1][1]) == small
    with Image.open(io.BytesIO(base64.b64decode(kinds[0][1]))) as image:
        assert image.size == (300, 300)
        assert len(base64.b64decode(kinds[0][1])) < len(large)
