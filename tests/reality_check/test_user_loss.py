"""The loss author's evening: a loss in a file of their own, a few lines of YAML, one command."""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path

import pytest
import torch
from support.command import write_images
from support.in_process import run_command
from support.pace import slowness
from support.preloaded import Started

from reality_check.config.metrics import METRICS
from reality_check.studies.output_folder import load_locked

pytestmark = pytest.mark.usefixtures("blank_figures")

#: Small enough that the whole way takes seconds.
TINY = [
    "protocol=quick_one_search",
    "dataset.classes=24",
    "dataset.images_per_class=6",
    "protocol.training.iterations_per_epoch=1",
    "protocol.training.max_epochs=1",
    "protocol.training.batch_size=8",
    "protocol.training.embedding_size=8",
    "protocol.search.trials=2",
    "protocol.reproductions=2",
    "model.arguments.width=8",
]


def succeed(folder: Path, *arguments: str) -> str:
    done = run_command(folder, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows_of(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder after ``init`` and ``check``, and what ``check`` printed."""
    folder = tmp_path_factory.mktemp("evening")
    wrote = succeed(folder, "init")
    files = ["experiment.yaml", "my_losses.py", "reality-check.schema.json"]
    assert sorted(path.name for path in folder.iterdir()) == files
    assert "reality-check run experiment.yaml" in wrote
    return folder, succeed(folder, "check", "experiment.yaml", *TINY)


@pytest.fixture(scope="module")
def finished(started: tuple[Path, str]) -> tuple[Path, str]:
    """The same folder after ``run``, and what ``run`` printed."""
    folder, _ = started
    return folder, succeed(folder, "run", "experiment.yaml", *TINY)


@pytest.mark.slow
def test_check_tells_gradients_parameters_and_cost(started: tuple[Path, str]) -> None:
    _, said = started
    assert "24 classes, 144 images" in said
    mine = said[said.index("my_loss") : said.index("normalized_softmax")]
    assert "searched: arguments.margin, arguments.scale, learning_rates.loss" in mine
    assert "on random embeddings" in mine
    assert len(mine.strip().splitlines()) == 2
    assert "gradients reach the embeddings and its own parameters (weights [12, 8])" in mine
    contrastive = said[said.index("contrastive (") :]
    assert "no parameters of its own" in contrastive
    # 3 methods x ((2 trials + 2 reproductions) x 4 folds + 2 complete runs)
    assert "cost: 54 trainings" in said
    command = shlex.join(["reality-check", "run", "experiment.yaml", *TINY])
    assert said.endswith(f"Everything can run. Next: {command}\n")


@pytest.mark.slow
def test_run_writes_all_results(finished: tuple[Path, str]) -> None:
    folder, said = finished
    out = folder / "runs" / "experiment"
    assert "Report: runs/experiment/report.html" in said
    assert re.search(r"^the settings found for \S+ (lead|retrain).* \(.*aggregate", said, re.M)
    assert "One search of each method cannot distinguish losses." in said
    for name in ("my_loss", "normalized_softmax", "contrastive"):
        assert name in said
    for file in ("report.html", "report.md", "tables.tex", "results.csv", "experiment.yaml"):
        assert (out / file).stat().st_size > 0
    rows = rows_of(out / "results.csv")
    places = ["experiment", "method", "category", "search", "trial", "reproduction"]
    assert list(rows[0]) == [*places, "metric", "value"]
    assert {row["search"] for row in rows} == {"0"}
    keys = [(r["method"], r["category"], r["reproduction"], r["metric"]) for r in rows]
    assert sorted(keys) == sorted(
        (method, category, reproduction, metric)
        for method in ("my_loss", "normalized_softmax", "contrastive")
        for category in ("aggregate", "ensemble", "complete")
        for reproduction in ("0", "1")
        for name in METRICS
        for metric in (name, f"{name}_raw")
    )
    assert all(0 <= float(row["value"]) <= 1 for row in rows)


@pytest.mark.slow
def test_locked_experiment_loads_again(finished: tuple[Path, str]) -> None:
    from reality_check import load_experiment

    folder, _ = finished
    experiment = load_experiment(folder / "runs" / "experiment" / "experiment.yaml")
    assert experiment.methods[0].name == "my_loss"
    assert experiment.protocol.search.trials == 2
    assert {"dataset", "my_losses.MyLoss"} <= set(experiment.code)


@pytest.mark.slow
def test_same_command_again_trains_nothing(finished: tuple[Path, str]) -> None:
    folder, said = finished
    out = folder / "runs" / "experiment"
    kept = ("results.csv", "baselines.csv", "report.html", "report.md", "tables.tex")
    before = {name: (out / name).read_bytes() for name in kept}
    log = (out / "logs" / "worker_0.json").stat().st_mtime_ns
    again = succeed(folder, "run", "experiment.yaml", *TINY)
    told = again.partition("Done in")[0].splitlines()
    assert told == [  # all but the lines about trainings
        line for line in said.partition("Done in")[0].splitlines() if not line.startswith("20")
    ]
    assert (out / "logs" / "worker_0.json").stat().st_mtime_ns == log, "a worker was started"
    assert {name: (out / name).read_bytes() for name in kept} == before


@pytest.mark.slow
def test_changed_code_of_the_loss_is_refused(finished: tuple[Path, str]) -> None:
    folder, _ = finished
    file = folder / "my_losses.py"
    kept = file.read_text()
    try:
        file.write_text(kept.replace("self.scale * (cosines", "2 * self.scale * (cosines"))
        done = run_command(folder, "run", "experiment.yaml", *TINY)
        assert done.returncode == 2
        assert "the code of my_losses.MyLoss has changed" in done.stderr
        assert "--out" in done.stderr
        assert "Complete." in succeed(folder, "status", "runs/experiment")
    finally:
        file.write_text(kept)


LOSSES = '''
import torch
from pytorch_metric_learning.losses import BaseMetricLossFunction, GenericPairLoss
from pytorch_metric_learning.utils import loss_and_miner_utils


class Pairs(GenericPairLoss):
    """A pair loss in PML's style; takes no num_classes."""

    def __init__(self, margin=0.5, **kwargs):
        super().__init__(mat_based_loss=False, **kwargs)
        self.margin = margin

    def _compute_loss(self, positives, negatives, indices_tuple):
        found = self.zero_losses()
        if len(positives):
            found["pos_loss"] = {
                "losses": torch.relu(positives - self.margin),
                "indices": loss_and_miner_utils.pos_pairs_from_tuple(indices_tuple),
                "reduction_type": "pos_pair",
            }
        if len(negatives):
            found["neg_loss"] = {
                "losses": torch.relu(2 * self.margin - negatives),
                "indices": loss_and_miner_utils.neg_pairs_from_tuple(indices_tuple),
                "reduction_type": "neg_pair",
            }
        return found

    def _sub_loss_names(self):
        return ["pos_loss", "neg_loss"]


class Plain(torch.nn.Module):
    """No PML at all: forward(embeddings, labels) returns one number."""

    def forward(self, embeddings, labels):
        distances = (embeddings[:, None] - embeddings[None]).square().sum(-1)
        same = labels[:, None] == labels[None]
        return distances[same].mean() + torch.relu(1 - distances[~same]).mean()


class Learned(torch.nn.Module):
    """A parameter of its own, but no num_classes."""

    def __init__(self, start=1.0):
        super().__init__()
        self.threshold = torch.nn.Parameter(torch.tensor(start))

    def forward(self, embeddings, labels):
        cosines = torch.nn.functional.normalize(embeddings)
        cosines = cosines @ cosines.T - self.threshold
        same = (labels[:, None] == labels[None]).to(cosines.dtype)
        return torch.nn.functional.binary_cross_entropy_with_logits(4 * cosines, same)
'''

EXPERIMENT = """\
dataset: {name: blobs, reader: tensors, path: blobs.npz}
model: {base: conv4, arguments: {width: 4}}
protocol:
  base: quick_one_search
  split: {folds: 2}
  training: {iterations_per_epoch: 1, max_epochs: 1, embedding_size: 8, batch_size: 8}
  search: {trials: 1, startup_trials: 1}
  reproductions: 1
  categories: [aggregate]
methods:
  - {name: pairs, loss: my_own.Pairs, arguments: {margin: {low: 0.2, high: 0.8}}}
  - name: everything
    loss: my_own.Pairs
    arguments:
      distance: {class: LpDistance, p: 2, power: {low: 1, high: 2}}
      reducer: AvgNonZeroReducer
      embedding_regularizer: {class: LpRegularizer, p: 2}
      embedding_reg_weight: 0.01
    miner: {class: PairMarginMiner, pos_margin: {low: 0.1, high: 0.3}}
  - {name: plain, loss: my_own.Plain, learning_rates: {trunk: 0.001}}
  - {name: learned, loss: my_own.Learned}
  - {name: packaged, loss: pkg.losses.Deep, learning_rates: {trunk: 0.001}}
"""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A folder with five kinds of losses of one's own."""
    write_images(tmp_path / "blobs.npz", 16)
    (tmp_path / "my_own.py").write_text(LOSSES)
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "losses.py").write_text(
        "from my_own import Plain\n\n\nclass Deep(Plain):\n    pass\n"
    )
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    return tmp_path


@pytest.mark.slow
def test_five_kinds_of_losses(lab: Path) -> None:
    said = succeed(lab, "check", "experiment.yaml")
    assert "its own parameters (threshold [])" in said
    everything = said[said.index("everything (") : said.index("plain (")]
    assert "arguments.distance.power" in everything
    assert "miner.pos_margin" in everything
    learned = said[said.index("learned (") : said.index("packaged (")]
    assert "learning_rates.loss" in learned
    plain = said[said.index("plain (") : said.index("learned (")]
    assert "searched: nothing" in plain

    (lab / "my_miners.py").write_text(
        "from pytorch_metric_learning.miners import PairMarginMiner\n\n\n"
        "class Mine(PairMarginMiner):\n    pass\n"
    )
    more = "methods.everything.miner=my_miners.Mine"
    done = Started(lab, lab / "log", "run", "experiment.yaml", more)  # and workers, as processes
    assert done.wait(240 * slowness()) == 0, done.complaints()
    out = lab / "runs" / "experiment"
    rows = rows_of(out / "results.csv")
    names = ["pairs", "everything", "plain", "learned", "packaged"]
    assert [r["method"] for r in rows] == [name for name in names for _ in range(2 * len(METRICS))]
    values = {r["method"]: r["value"] for r in rows if r["metric"] == "mean_average_precision_at_r"}
    # The same loss with the same seeds, and nothing searched: the same network.
    assert values["plain"] == values["packaged"]
    weights = [torch.load(path, weights_only=True) for path in out.glob("plain/*/*/*/model.pt")]
    assert all(torch.isfinite(t).all() for state in weights for t in state.values())
    # The code of every class of one's own is recorded.
    assert set(load_locked(out).code) == {
        "dataset",
        "my_own.Pairs",
        "my_own.Plain",
        "my_own.Learned",
        "pkg.losses.Deep",
        "my_miners.Mine",
    }
