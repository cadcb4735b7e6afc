"""The page in a headless Chromium: no complaints, sorting, filtering, themes, narrow, in print."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread
from support.made_up_results import make_results

from reality_check.report.writing import write_report

pytestmark = pytest.mark.browser

#: What a probe may use: the table of a category, its column of names, and what a column holds.
_TOOLS = """
const find = (selector) => document.querySelector(selector);
const table = (category) => find(`#comparison table[data-category="${category}"]`);
const rows = (category) => [...table(category).tBodies[0].rows].filter((row) => !row.hidden);
const names = (category) => rows(category).map((row) => row.cells[0].textContent);
const head = (category, index) => table(category).tHead.rows[0].cells[index];
const press = (category, index) => head(category, index).querySelector("button").click();
const type = (text) => {
  find("form.filter").elements.namedItem("method").value = text;
  find("form.filter").dispatchEvent(new Event("input"));
};
const tick = (value) => find(`.filter input[value="${value}"]`).click();
const colour = () => getComputedStyle(document.body).backgroundColor;
"""

_FRAME = """<!DOCTYPE html><body><iframe src="probed.html" width="{}" height="2000"></iframe>
<script>
addEventListener("message", (event) => {{
  const shown = document.createElement("pre");
  shown.id = "probe";
  shown.textContent = event.data;
  document.body.append(shown);
}});
</script></body>"""

Browse = Callable[..., str]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the made-up experiment."""
    folder = tmp_path_factory.mktemp("page")
    write_report(make_results(), folder)
    return folder / "report.html"


@pytest.fixture
def browse(tmp_path: Path) -> Browse:
    """Runs the browser on a page; returns what it prints, and with ``log`` also what it logs."""
    found = next(
        (
            path
            for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
            if path
        ),
        None,
    )
    assert found is not None

    def run(page: Path, *options: str, width: int = 1280, log: bool = False) -> str:
        command = [
            found, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
            "--no-first-run", "--disable-background-networking", "--disable-component-update",
            "--disable-sync", "--hide-scrollbars", f"--user-data-dir={tmp_path / 'profile'}",
            f"--window-size={width},4000", "--virtual-time-budget=5000",
            *(["--enable-logging=stderr"] if log else []), *options, page.as_uri(),
        ]  # fmt: skip
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=180)
        return done.stdout + (done.stderr if log else "")

    return run


@pytest.fixture
def probe(page: Path, tmp_path: Path, browse: Browse) -> Callable[..., Any]:
    """Runs a script on a copy of the page that allows it; returns what ``probe`` returns."""

    def run(script: str, *options: str, before: str = "", width: int = 1280) -> Any:
        text = page.read_text("utf-8")
        text, count = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
        assert count == 1
        early = f"<script>{before}</script><script>"
        text = text.replace("<script>", early, 1).replace(
            "</body>",
            f"<script>{_TOOLS}\naddEventListener('load', () => {{\n"
            f"const found = (() => {{ {script} }})();\n"
            "parent.postMessage(JSON.stringify(found), '*');\n});</script></body>",
        )
        (tmp_path / "probed.html").write_text(text, "utf-8")
        copy = tmp_path / "frame.html"
        # In a frame, since no window of this browser is narrower than 500 pixels.
        copy.write_text(_FRAME.format(width), "utf-8")
        shown = re.search(
            r'<pre id="probe">(.*?)</pre>', browse(copy, "--dump-dom", *options, width=1400)
        )
        assert shown is not None, "the probe did not come to its end"
        return json.loads(html.unescape(shown[1]))

    return run


def test_the_page_gives_no_cause_for_complaint(page: Path, browse: Browse, tmp_path: Path) -> None:
    said = browse(page, "--dump-dom", log=True)
    assert "CONSOLE" not in said
    assert 'class="sortable"' in said, "the script ran"
    foreign = tmp_path / "foreign.html"
    text = page.read_text("utf-8").replace("</body>", "<script>document.title = 1</script></body>")
    foreign.write_text(text, "utf-8")
    said = browse(foreign, "--dump-dom", log=True)
    assert "CONSOLE" in said, "complaints are seen here"
    assert "<title>1</title>" not in said, "no other script runs"


def test_the_comparison_is_filtered_and_tables_are_sorted_by_their_heads(
    probe: Callable[..., Any],
) -> None:
    found = probe("""
        const form = find("form.filter");
        const said = () => form.querySelector("output").textContent;
        const start = [form.hidden, said()];
        type("LO");
        const typed = [names("ensemble"), names("complete"), said()];
        tick("aggregate");
        tick("RP");
        const shown = [...table("ensemble").tHead.rows[0].cells].filter((cell) => !cell.hidden);
        const ticked = {
          hidden: table("aggregate").parentElement.hidden,
          heads: shown.map((cell) => cell.textContent),
          cells: rows("ensemble").map((row) => [...row.cells].filter((c) => !c.hidden).length),
        };
        type("nobody");
        const none = [rows("ensemble").length, said()];
        type("");
        tick("aggregate");
        tick("RP");

        const now = () => [names("ensemble"), head("ensemble", 1).getAttribute("aria-sort")];
        const seen = [now()];
        for (let time = 0; time < 3; time++) {
          press("ensemble", 1);
          seen.push(now());
        }
        press("ensemble", 1);
        press("ensemble", 0);
        seen.push(now());
        const button = head("ensemble", 0).querySelector("button");
        button.focus();
        const focused = document.activeElement === button;

        delete table("ensemble").tBodies[0].rows[0].cells[2].dataset.value;
        press("ensemble", 2);
        const falling = names("ensemble");
        press("ensemble", 2);
        const below = [falling, names("ensemble")];
        const complete = names("complete");
        return { start, typed, ticked, none, seen, complete, role: button.type, focused, below };
    """)
    assert found["start"] == [False, "4 of 4 methods shown"]
    named = ["my_loss_50%", "late & slow"]
    assert found["typed"] == [named, named, "2 of 4 methods shown"]
    assert found["ticked"] == {
        "hidden": True,
        "heads": ["Method", "MAP@R", "P@1", "n", "Trained parameters", "Time of a training"],
        "cells": [6, 6],
    }
    assert found["none"] == [0, "0 of 4 methods shown"]
    given = ["warped", "my_loss_50%", "<b>x</b>", "late & slow"]
    assert found["seen"] == [
        [given, None],
        [given, "descending"],  # levels of the made-up methods fall in their order
        [given[::-1], "ascending"],
        [given, None],
        [["<b>x</b>", "late & slow", "my_loss_50%", "warped"], None],
    ]
    assert found["complete"] == given, "other tables stay as they are"
    assert found["focused"], "heads are reached with the keyboard"
    assert found["role"] == "button"
    without = "<b>x</b>"  # a number; the first row by names
    assert [order[-1] for order in found["below"]] == [without, without]
    assert found["below"][0][:-1] == found["below"][1][:-1][::-1]


def test_the_theme_follows_the_system_or_the_button_and_is_remembered(
    probe: Callable[..., Any],
) -> None:
    script = """
        const button = find("#theme");
        const before = [colour(), button.textContent];
        button.click();
        const kept = localStorage.getItem("reality-check-theme");
        return [before, [colour(), button.textContent], kept];
    """
    light, dark = ["rgb(255, 255, 255)", "Dark theme"], ["rgb(23, 24, 26)", "Light theme"]
    assert probe(script) == [light, dark, "dark"]
    assert probe(script, "--blink-settings=preferredColorScheme=0") == [dark, light, "light"]
    chosen = 'localStorage.setItem("reality-check-theme", "dark");'
    assert probe(script, before=chosen) == [dark, light, "light"]
    forbidden = 'Object.defineProperty(window, "localStorage", { get() { throw new Error(); } });'
    shorter = script.replace('localStorage.getItem("reality-check-theme")', "null")
    assert probe(shorter, before=forbidden) == [light, dark, None], "it lasts as long as the page"


def test_folds_open_together_and_a_narrow_page_is_not_pushed_sideways(
    probe: Callable[..., Any],
) -> None:
    found = probe(
        """
        const folds = [...document.querySelectorAll("main details")];
        const open = () => folds.filter((fold) => fold.open).length;
        const button = find("#folds");
        const seen = [open(), button.textContent];
        button.click();
        const all = open() === folds.length && folds.length > 8;

        for (const fold of document.querySelectorAll("details")) fold.open = true;
        const page = document.documentElement;
        const wide = [...document.querySelectorAll("main *")].filter((found) =>
          found.getBoundingClientRect().right > innerWidth + 1 && !found.closest(".scroll, pre"));
        const widths = [innerWidth, page.scrollWidth];
        return [seen, all, widths, wide.map((found) => found.outerHTML.slice(0, 80))];
        """,
        width=390,
    )
    assert found == [[0, "Unfold all"], True, [390, 390], []]


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (500, True)])
def test_the_page_is_drawn(
    page: Path, browse: Browse, tmp_path: Path, width: int, dark: bool
) -> None:
    picture = tmp_path / "page.png"
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    browse(page, f"--screenshot={picture}", *scheme, width=width)
    pixels = imread(picture)[..., :3]
    assert pixels.shape[:2] == (4000, width)
    ground = np.array([23, 24, 26]) / 255 if dark else np.ones(3)
    marked = (abs(pixels - ground).max(axis=2) > 0.5).mean(axis=1)
    assert (marked > 0).mean() > 0.3, "text, tables and figures all over the page"
    blue = np.array([75, 163, 227] if dark else [0, 114, 178]) / 255
    assert (abs(pixels - blue).max(axis=2) < 0.03).sum() > 50, "the figures have the page's colours"


def test_the_printed_report_has_what_is_folded_too(
    page: Path, browse: Browse, tmp_path: Path
) -> None:
    def pages(source: Path) -> int:
        printed = tmp_path / f"{source.stem}.pdf"
        browse(source, "--no-pdf-header-footer", f"--print-to-pdf={printed}")
        return len(re.findall(rb"/Type\s*/Page\b", printed.read_bytes()))

    folded = tmp_path / "folded.html"
    text = re.sub(r"<script>.*?</script>", "", page.read_text("utf-8"), flags=re.S)
    folded.write_text(text.replace("details::details-content", "nothing"), "utf-8")
    assert pages(page) > pages(folded) + 3
