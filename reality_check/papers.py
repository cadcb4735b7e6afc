"""The papers' tables as experiments: what there is, what data it needs, what was published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reality_check.checking import count_trainings
from reality_check.config.compose import load_experiment, paper_files, read_yaml
from reality_check.config.published import PAPERS, PublishedResults
from reality_check.config.schema import Experiment
from reality_check.final_metrics import title
from reality_check.named_files import configs_root

#: Beginning and end of the table in ``docs/papers.md``.
BEGIN, END = "<!-- reality-check show papers --markdown -->", "<!-- end of the table -->"
#: Methods that a cell names one by one.
_MOST_NAMED = 3


@dataclass(frozen=True)
class PaperConfig:
    """One experiment of ``configs/papers/``.

    Attributes:
        name: what ``run`` and ``show`` take, e.g. ``papers/000_sgsl/table1_cub200``.
        paper: name of the folder.
        item: of the paper, e.g. ``Table 1``.
        dataset: name of the data set that it needs.
        methods: how many it compares.
        trainings: how many networks it trains.
        published: the figures in a phrase; empty where none were printed.
        gaps: what it cannot do as the paper did.
    """

    name: str
    paper: str
    item: str
    dataset: str
    methods: int
    trainings: int
    published: str
    gaps: tuple[str, ...]


def paper_configs() -> list[PaperConfig]:
    """All experiments of the papers' tables, by name."""
    return [_describe(name, load_experiment(name)) for name in sorted(paper_files())]


def _describe(name: str, experiment: Experiment) -> PaperConfig:
    published = experiment.published_results
    return PaperConfig(
        name=name,
        paper=published.paper if published else name.split("/")[1],
        item=published.item if published else "",
        dataset=experiment.dataset.name,
        methods=len(experiment.methods),
        trainings=count_trainings(experiment),
        published=_figures(published) if published else "",
        gaps=tuple(published.gaps) if published else (),
    )


def _figures(published: PublishedResults) -> str:
    """Recall@1, or the first metric, of the last category: ``R@1: sgsl_512 72.0``."""
    if not published.results:
        return ""
    methods = list(published.results.values())[-1]
    named = dict.fromkeys(metric for figures in methods.values() for metric in figures)
    metric = "recall_at_1" if "recall_at_1" in named else next(iter(named))
    name = title(metric)
    values = {method: found[metric][0] for method, found in methods.items() if metric in found}
    if len(values) <= _MOST_NAMED:
        return f"{name}: " + ", ".join(f"{method} {value}" for method, value in values.items())
    low, high = min(values.values()), max(values.values())
    return f"{name}: {low} to {high} ({len(values)} methods)"


def measured() -> Mapping[str, str]:
    """What was measured, by the name of the experiment (``configs/papers/measured.yaml``)."""
    return read_yaml(configs_root() / "papers" / "measured.yaml")


def markdown_table() -> str:
    """The table of ``docs/papers.md``: a row for each experiment."""
    done = measured()
    header = ["item", "config", "networks", "published", "measured", "status"]
    blocks = []
    configs = paper_configs()
    for paper in dict.fromkeys(config.paper for config in configs):
        rows = [_cells(config, done) for config in configs if config.paper == paper]
        lines = [header, ["---"] * len(header), *rows]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        blocks.append(f"## {paper.partition('_')[0]}: {PAPERS[paper]}\n\n{table}")
    return "\n\n".join(blocks) + "\n"


def _cells(config: PaperConfig, done: Mapping[str, str]) -> list[str]:
    status = "run here" if config.name in done else f"runnable with {config.dataset}"
    status += f"; {len(config.gaps)} gaps" if len(config.gaps) > 1 else "; 1 gap" * len(config.gaps)
    return [
        config.item,
        f"`{config.name.partition('/')[2]}`",
        str(config.trainings),
        config.published or "nothing that is measured here",
        done.get(config.name, "—"),
        status,
    ]
