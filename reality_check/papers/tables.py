"""The papers' tables as experiments: what there is, what data it needs, what was published."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from reality_check.config.compose import load_experiment
from reality_check.config.metrics import title
from reality_check.config.published import PAPERS, PublishedResults
from reality_check.config.schema import Experiment, count_trainings
from reality_check.config.yaml_text import read_yaml
from reality_check.report.text import counted
from reality_check.utils.config_files import configs_root, paper_files, shipped_files

#: Beginning and end of the table in ``docs/papers.md``.
BEGIN, END = "<!-- reality-check show papers --markdown -->", "<!-- end of the table -->"
#: Folder of the experiments whose claims are those of the papers.
REPLICATIONS = "replications/"
#: Methods that a cell names one by one.
_MOST_NAMED = 3
#: ``Tables 1, 3 and 5 to 7`` or ``Fig. 4`` in the source of a claim.
_ITEMS = re.compile(r"(Table|Fig)[a-z.]* ([\dIV]+(?:(?:, | and | to )[\dIV]+)*)")
_KINDS = {"Table": "Table", "Fig": "Figure"}
_ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII")


def paper_tables() -> dict[str, tuple[Experiment, PublishedResults]]:
    """The experiments of the papers' tables by name, each with what was printed."""
    tables = {}
    for name in sorted(paper_files()):
        experiment = load_experiment(name)
        assert experiment.published_results is not None, name
        tables[name] = experiment, experiment.published_results
    return tables


def _figures(published: PublishedResults) -> str:
    """Recall@1, or the first metric, of the last category: ``R@1: sgsl_512 72.0``."""
    if not published.results:
        return ""
    methods = list(published.results.values())[-1]
    named = dict.fromkeys(metric for figures in methods.values() for metric in figures)
    metric = "recall_at_1" if "recall_at_1" in named else next(iter(named))
    name = title(metric)
    values = {
        method: figures[metric][0] for method, figures in methods.items() if metric in figures
    }
    if len(values) <= _MOST_NAMED:
        return f"{name}: " + ", ".join(f"{method} {value}" for method, value in values.items())
    low, high = min(values.values()), max(values.values())
    return f"{name}: {low} to {high} ({len(values)} methods)"


def measured() -> Mapping[str, str]:
    """What was measured, by the name of the experiment (``configs/papers/measured.yaml``)."""
    return read_yaml(configs_root() / "papers" / "measured.yaml")


def replications() -> list[Experiment]:
    """The experiments that ship with the package to check claims of the papers, by name."""
    names = [name for name in shipped_files("experiments") if name.startswith(REPLICATIONS)]
    return [load_experiment(name) for name in sorted(names)]


def checked_on_small_data() -> dict[tuple[str, str], list[str]]:
    """The replications that check claims of a paper's item, by paper (``000``) and item."""
    replicated: dict[tuple[str, str], list[str]] = {}
    for experiment in replications():
        for claim in experiment.claims:
            paper = claim.source.partition(",")[0]
            for item in items_in(claim.source):
                names = replicated.setdefault((paper, item), [])
                if experiment.name not in names:
                    names.append(experiment.name)
    return replicated


def items_in(source: str) -> list[str]:
    """The items that the source of a claim names.

    >>> items_in("003, Tables 1 to 3 and Fig. 4")
    ['Table 1', 'Table 2', 'Table 3', 'Figure 4']
    """
    return [
        f"{_KINDS[kind]} {number}"
        for kind, numbers in _ITEMS.findall(source)
        for number in _numbers(re.split(r"(, | and | to )", numbers))
    ]


def _numbers(parts: Sequence[str]) -> Iterator[str]:
    """The numbers of ``1``, `` to ``, ``3``, ``, ``, ``5``; Roman ones stay so."""
    yield parts[0]
    for before, how, number in zip(parts[::2], parts[1::2], parts[2::2], strict=False):
        if how == " to ":
            series = _ROMAN if number in _ROMAN else [str(n) for n in range(1, int(number) + 1)]
            yield from series[series.index(before) + 1 : series.index(number)]
        yield number


def markdown_table() -> str:
    """Return the table of ``docs/papers.md``: a row for each experiment."""
    done, checked = measured(), checked_on_small_data()
    header = ["config", "networks", "published", "notes"]
    blocks = []
    tables = paper_tables()
    for paper in dict.fromkeys(published.paper for _, published in tables.values()):
        rows = [
            _cells(name, experiment, published, done)
            for name, (experiment, published) in tables.items()
            if published.paper == paper
        ]
        lines = [header, ["---"] * len(header), *rows]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        number = paper.partition("_")[0]
        claims = "; ".join(_claims(number, checked))
        blocks.append(f"## {number}: {PAPERS[paper]}\n\n{table}\n\nClaims: {claims}.")
    return "\n\n".join(blocks) + "\n"


def _cells(
    name: str, experiment: Experiment, published: PublishedResults, done: Mapping[str, str]
) -> list[str]:
    notes = [f"measured: {done[name]}"] if name in done else []
    if published.gaps:
        notes.append(counted(len(published.gaps), "gap"))
    return [
        f"`{name.partition('/')[2]}`",
        str(count_trainings(experiment)),
        _figures(published) or "—",
        "; ".join(notes),
    ]


def _claims(paper: str, checked: Mapping[tuple[str, str], Sequence[str]]) -> Iterator[str]:
    """The replications that check claims of a paper, each with its items."""
    of_paper = {item: names for (number, item), names in checked.items() if number == paper}
    for name in sorted({name for names in of_paper.values() for name in names}):
        items = sorted(item for item, names in of_paper.items() if name in names)
        yield f"`{name}` ({', '.join(items)})"
