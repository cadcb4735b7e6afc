"""A metric in a file of the user's own: from its name in a YAML to CSV, report and pack."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch
from support.in_process import run_command

import reality_check
from reality_check.config import compose
from reality_check.config.described import describe, description_of
from reality_check.data import load_dataset
from reality_check.launch.cost import estimate_cost

pytestmark = pytest.mark.usefixtures("blank_figures")

METRICS = """
import torch
from reality_check import describe

@describe(title="spread", unit="rad", higher_is_better=False)
def spread(embeddings, labels):
    assert embeddings.dtype == torch.float32 and labels.dtype == torch.int64
    centres = torch.stack([embeddings[labels == c].mean(0) for c in labels.unique()])
    noise = torch.randn(())  # of generators that are not the training's
    return (embeddings - centres[labels.unique(return_inverse=True)[1]]).norm(dim=1).mean()

def nearest_is_right(embeddings, labels, references, reference_labels):
    distances = torch.cdist(embeddings, references)
    distances.fill_diagonal_(torch.inf)
    embeddings.zero_()  # its own copy
    return float((reference_labels[distances.argmin(1)] == labels).double().mean())
"""
TINY = """
name: own
dataset: {base: glyphs, classes: 24, images_per_class: 6}
model: {base: conv4, arguments: {width: 8}}
protocol:
  base: quick_one_search
  training: {iterations_per_epoch: 3, max_epochs: 2, batch_size: 8, embedding_size: 8}
  search: {trials: 2}
  reproductions: 1
  categories: [aggregate, ensemble]
  final_metrics: [my_metrics.nearest_is_right, my_metrics.spread]
  selects_by: my_metrics.spread
methods: [quick/contrastive]
"""


def command(folder: Path, *arguments: str, fails: bool = False) -> str:
    done = run_command(folder, *arguments)
    assert bool(done.returncode) == fails, done.stdout + done.stderr
    return done.stderr if fails else done.stdout


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the metrics, an experiment that asks for them, and its results."""
    folder = tmp_path_factory.mktemp("metric")
    (folder / "my_metrics.py").write_text(METRICS)
    (folder / "own.yaml").write_text(TINY)
    command(folder, "run", "own.yaml")
    return folder


def rows(out: Path, name: str = "results.csv") -> list[dict[str, str]]:
    with (out / name).open(newline="") as opened:
        return list(csv.DictReader(opened))


def test_it_is_measured_in_every_category_and_of_the_baselines(finished: Path) -> None:
    out = finished / "runs" / "own"
    values = {(row["category"], row["metric"]): float(row["value"]) for row in rows(out)}
    for category in ("aggregate", "ensemble"):
        # An oracle of this package: the share of queries whose nearest reference is of their class.
        found = values[category, "my_metrics.nearest_is_right"]
        assert found == pytest.approx(values[category, "precision_at_1"])
        assert values[category, "my_metrics.spread"] > 0
    assert "my_metrics.spread_raw" not in {metric for _, metric in values}
    assert "my_metrics.spread" in (out / "baselines.csv").read_text()


def test_its_title_unit_and_direction_are_printed(finished: Path) -> None:
    report = (finished / "runs" / "own" / "report.md").read_text()
    assert "spread (rad)" in report
    assert "nearest_is_right" in report
    assert "Values are validation -spread (rad)" in report
    (row,) = [line for line in report.splitlines() if "ContrastiveLoss" in line and "|" in line]
    best = max(float(row["value"]) for row in rows(finished / "runs/own", "trials.csv")[:2])
    assert f"| {best:.3f} |" in row
    assert "epochs and trials were selected by validation -spread (rad)" in report
    assert "nothing was selected by them" not in report


def test_what_is_selected_is_the_lowest(finished: Path) -> None:
    out = finished / "runs" / "own"
    summary = json.loads((out / "summary.json").read_text())
    (method,) = summary["methods"]
    search = [row for row in rows(out, "trials.csv") if row["stage"] == "search"]
    spreads = [-float(row["value"]) for row in search]
    assert all(spread > 0 for spread in spreads)
    assert spreads[method["best_trial"]["number"]] == min(spreads)
    for records in out.glob("contrastive/search/*/fold_0/records/accuracies*.csv"):
        with records.open(newline="") as opened:
            curve = [row for row in csv.DictReader(opened) if int(row["epoch"]) >= 0]
        lowest = min(float(row["my_metrics.spread_level0"]) for row in curve)
        assert float(curve[-1]["best_accuracy"]) == pytest.approx(lowest)


def test_results_are_read_without_importing_it(finished: Path, tmp_path: Path) -> None:
    pack = tmp_path / "own.pack"
    command(finished, "pack", "runs/own", "--out", str(pack))
    (tmp_path / "my_metrics.py").write_text("raise SystemExit('imported')")
    command(tmp_path, "report", str(pack), "--out", "again")
    assert "spread (rad)" in (tmp_path / "again" / "report.md").read_text()


def test_changed_code_is_refused_and_the_source_is_kept(finished: Path) -> None:
    assert (finished / "runs/own/sources/my_metrics.py").read_text() == METRICS
    file = finished / "my_metrics.py"
    file.write_text(METRICS.replace("norm(dim=1)", "norm(dim=1).square()"))
    try:
        said = command(finished, "run", "own.yaml", fails=True)
        assert "the code of my_metrics.nearest_is_right has changed" in said
    finally:
        file.write_text(METRICS)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return float('nan')", "returned nan for 32 embeddings; it must return one finite number"),
        ("return float('inf')", "returned inf for 32 embeddings"),
        ("return embeddings", "returned tensor("),
        ("return 'high'", "returned 'high'"),
        ("return None", "returned None"),
        ("return embeddings[99]", "failed on 32 embeddings: IndexError"),
        ("raise SystemExit", "failed on 32 embeddings: the program is ended by sys.exit"),
        ("return embeddings.cuda().mean()", "failed on 32 embeddings: "),
    ],
)
def test_a_metric_that_fails_is_named_before_anything_is_trained(
    tmp_path: Path, body: str, said: str
) -> None:
    (tmp_path / "my_metrics.py").write_text(f"def bad(embeddings, labels):\n    {body}\n")
    asked = TINY.replace("my_metrics.spread", "my_metrics.bad")
    (tmp_path / "own.yaml").write_text(asked.replace("my_metrics.nearest_is_right, ", ""))
    message = command(tmp_path, "run", "own.yaml", fails=True)
    assert message.count("\n") == 1
    assert f"metric 'my_metrics.bad' {said}" in message
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("silhouette = 3", "my_metrics.silhouette", "it must be a class or a function"),
        (
            "def other(x, y): ...",
            "my_metrics.silhouette",
            "has no 'silhouette'; its functions: other",
        ),
        ("def f(x): ...", "my_metrics.f", "takes 1 positional argument but 2 were given"),
        ("", "no_module.f", "there is no module 'no_module'"),
        (
            "import reality_check as rc\n@rc.describe(title='')\ndef f(x, y): ...",
            "my_metrics.f",
            "reality_check.describe: title is empty",
        ),
    ],
)
def test_one_that_is_not_there_is_said(tmp_path: Path, text: str, name: str, said: str) -> None:
    (tmp_path / "my_metrics.py").write_text(text)
    asked = f"protocol.final_metrics=[{name}]"
    message = command(tmp_path, "check", "quickstart", asked, fails=True)
    assert said in message
    assert name in message


def test_one_that_failed_when_it_scored_can_be_mended_and_no_training_is_lost(
    tmp_path: Path,
) -> None:
    late = METRICS.replace("    distances =", "    assert len(embeddings) < 40\n    distances =")
    (tmp_path / "my_metrics.py").write_text(late)
    (tmp_path / "own.yaml").write_text(TINY.replace("  selects_by: my_metrics.spread\n", ""))
    said = command(tmp_path, "run", "own.yaml", fails=True)
    assert "metric 'my_metrics.nearest_is_right' failed on 72 embeddings: AssertionError" in said
    trained = {p: p.stat().st_mtime_ns for p in tmp_path.glob("runs/own/contrastive/search/*")}
    (tmp_path / "my_metrics.py").write_text(METRICS)
    command(tmp_path, "run", "own.yaml")
    assert {p: p.stat().st_mtime_ns for p in trained} == trained
    assert any(
        row["metric"] == "my_metrics.nearest_is_right" for row in rows(tmp_path / "runs/own")
    )


def test_the_cost_counts_it(tmp_path: Path) -> None:
    slow = "import time\ndef slow(embeddings, labels):\n    t = time.process_time() + 0.5\n"
    slow += "    while time.process_time() < t: pass\n    return 1.0\n"
    (tmp_path / "slow_metrics.py").write_text(slow)
    cheap = [line for line in TINY.splitlines() if "my_metrics" not in line]
    (tmp_path / "cheap.yaml").write_text("\n".join(cheap))
    (tmp_path / "slow.yaml").write_text(
        "\n".join([*cheap, ""]).replace(
            "  reproductions: 1", "  reproductions: 1\n  selects_by: slow_metrics.slow"
        )
    )
    seconds = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        for name in ("cheap", "slow"):
            experiment = reality_check.load_experiment(f"{name}.yaml")
            data = load_dataset(experiment.dataset)
            seconds[name] = estimate_cost(experiment, data, torch.device("cpu")).least
    assert seconds["slow"] > seconds["cheap"] + 0.1


def test_without_a_description_its_name_is_the_title() -> None:
    def plain(embeddings: object, labels: object) -> float:
        return 0.0

    assert description_of(plain) == reality_check.Description("plain", "", True)
    described = describe(title="speed", unit="ms", higher_is_better=False)(plain)
    assert described is plain
    assert description_of(plain) == reality_check.Description("speed", "ms", False)


@pytest.mark.parametrize(
    "arguments", [{"title": "two\nlines"}, {"title": 3}, {"title": "t", "higher_is_better": 1}]
)
def test_a_description_that_cannot_be_printed_is_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"^reality_check\.describe: "):
        describe(**arguments)  # type: ignore[arg-type]


def test_a_yaml_takes_it_without_importing_it() -> None:
    raw = {"name": "x", "dataset": "glyphs", "model": "conv4", "methods": ["contrastive"]}
    experiment = compose({**raw, "protocol": "quick"}, ["protocol.selects_by=no_such.metric"])
    assert experiment.protocol.selects_by == "no_such.metric"
