"""Published tables beside an experiment's own results, and only where they may stand there."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

import reality_check as rc
from reality_check.cli import main as cli
from reality_check.config import Experiment, load_experiment
from reality_check.config.metrics import METRICS
from reality_check.config.yaml_text import dump_yaml
from reality_check.papers.printed_tables import ShippedTable, published_tables
from reality_check.papers.published_comparison import comparable_tables
from reality_check.report.writing import write_report
from reality_check.results import ExperimentResults, MethodResults, ResultRow
from reality_check.utils.config_files import shipped_files

TABLES = {f"{table.printed.source} {table.reader}": table for table in published_tables()}
#: MAP@R in the ensemble category, read off the specification and off paper 004's Tables VI to VIII.
KNOWN = {
    ("cub200", "cosface"): {26.70, 26.95},
    ("cub200", "contrastive"): {26.53, 25.90},
    ("cars196", "multi_similarity"): {28.07, 35.25},
    ("stanford_online_products", "arcface"): {47.41, 47.78},
}


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_every_table_is_of_something_that_the_package_has(table: ShippedTable) -> None:
    protocols = shipped_files("protocols")
    assert table.protocol in protocols
    for category, methods in table.printed.results.items():
        assert len(methods) >= 6, category
        for name, figures in methods.items():
            assert list(figures) == list(METRICS)
            assert all(0 < figure[0] < 100 for figure in figures.values())
            values = [figures[metric][0] for metric in METRICS]
            assert values == sorted(values), f"{name}: MAP@R is at most RP, and RP at most P@1"
            assert name in shipped_files("methods") or "pretrained" in name
    assert any("unverified" in text or "No code" in text for text in table.printed.notes)


def test_there_are_two_papers_for_each_of_three_data_sets() -> None:
    assert len(TABLES) == 6
    assert {table.reader for table in TABLES.values()} == {key[0] for key in KNOWN}
    for (reader, method), expected in KNOWN.items():
        found = {
            table.printed.results["ensemble"][method]["mean_average_precision_at_r"][0]
            for table in TABLES.values()
            if table.reader == reader
        }
        assert found == expected


def results_of(experiment: Experiment, **changes: object) -> ExperimentResults:
    """One network of each method, all scores 25 %."""
    rows = tuple(
        ResultRow(experiment.name, method.name, category, 0, metric, 0.25)
        for method in experiment.methods
        for category in experiment.protocol.categories
        for metric in METRICS
    )
    made = ExperimentResults(
        name=experiment.name,
        protocol=experiment.protocol.name,
        reference=experiment.protocol.reference,
        finished=False,
        methods=tuple(MethodResults(method.name, method.loss) for method in experiment.methods),
        rows=rows,
        config=experiment.plain(),
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


@pytest.mark.usefixtures("undrawn")
def test_tables_stand_beside_the_results_of_the_same_data(tmp_path: Path) -> None:
    own = "{name: mine, loss: my_losses.MyLoss}"
    experiment = load_experiment("cub200_mlrc", [f"methods=[cosface, contrastive, {own}]"])
    tables = comparable_tables(experiment)
    assert [set(table.results) for table in tables] == [{"ensemble", "aggregate"}] * 2
    write_report(results_of(experiment, published=tables), tmp_path)
    lines = (tmp_path / "report.md").read_text(encoding="utf-8").splitlines()
    cosface = [line for line in lines if line.startswith("| cosface | ensemble |")]
    values = [line.strip("| ").split(" | ")[2:4] for line in cosface]
    values = [pair for pair in values if pair[0] != "—"]  # the table of every reproduction
    assert values == [
        ["published", "26.95 ± 0.15"],
        ["measured", "25.00"],
        ["difference", "−1.95"],
        ["published", "26.70 ± 0.23"],
        ["measured", "25.00"],
        ["difference", "−1.70"],
    ]
    assert sum(line.startswith("| mine | ensemble | measured | 25.00") for line in lines) == 2
    assert not any(line.startswith("| mine | ensemble | published") for line in lines)
    hist = [line for line in lines if line.startswith("| hist | ensemble")]
    assert len(hist) == 1, "only what was published: it is no method here"
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "A Metric Learning Reality Check (ECCV 2020), results on CUB-200-2011" in text
    assert "Table VI" in text
    assert "demoor2024warping" in (tmp_path / "references.bib").read_text(encoding="utf-8")


def notes(experiment: Experiment, paper: str) -> str:
    (table,) = (t for t in comparable_tables(experiment) if t.source.startswith(paper))
    return "\n".join(table.notes)


def test_what_differs_from_the_published_protocol_is_said() -> None:
    changes = ["protocol.search.trials=8", "methods=[cosface]"]
    text = notes(load_experiment("cub200_mlrc", changes), "A Metric Learning Reality Check")
    assert "Different: search: trials 8 (mlrc: 50)" in text
    text = notes(load_experiment("cub200_mlrc", ["methods=[cosface]"]), "Realigned")
    assert "trunk bn_inception (appendix_d: resnet50)" in text
    changes = ["dataset.check_counts=false"]
    text = notes(load_experiment("cub200_mlrc", changes), "A Metric Learning Reality Check")
    assert "Different: data set: it was not checked whether all published images are here" in text
    whole = notes(load_experiment("cub200_mlrc"), "A Metric Learning Reality Check")
    assert "The protocol is mlrc, as there." in whole
    assert "Different: " not in whole


def test_a_method_of_the_same_name_but_another_loss_is_not_the_tables() -> None:
    own = "{name: cosface, loss: my_losses.CosFaceLoss}"
    experiment = load_experiment("cub200_mlrc", [f"methods=[{own}, arcface]"])
    for table in comparable_tables(experiment):
        assert "cosface" not in table.results["ensemble"]
        assert "cosface (of the table)" in table.results["ensemble"]
        assert "arcface" in table.results["ensemble"]


def test_only_categories_that_are_measured_are_shown() -> None:
    experiment = load_experiment("sop_appendix_d", ["protocol.categories=[complete]"])
    (table,) = comparable_tables(experiment)
    assert set(table.results) == {"complete"}


def test_where_nothing_is_comparable_it_is_said_what_is() -> None:
    with pytest.raises(rc.UsageError) as caught:
        comparable_tables(load_experiment("quickstart"))
    text = str(caught.value)
    assert "quickstart, which has the data set glyphs (reader glyphs)" in text
    assert "tables of cars196 (complete, ensemble, aggregate), cub200 (" in text


def test_a_table_does_not_stand_beside_itself() -> None:
    name = "papers/004_warped_softmax/table6_cub200"
    assert [table.item for table in comparable_tables(load_experiment(name))] == [
        "results on CUB-200-2011"
    ]
    experiment = load_experiment(name, ["protocol.categories=[complete]"])
    with pytest.raises(rc.UsageError, match="its report shows those figures already"):
        comparable_tables(experiment)


def test_the_command_says_what_it_cannot_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = load_experiment("quickstart").model_copy(update={"code": {"dataset": "0"}}).plain()
    (tmp_path / "experiment.yaml").write_text(dump_yaml(plain), encoding="utf-8")
    assert cli.main(["report", str(tmp_path), "--compare", "published"]) == 2
    said = capsys.readouterr().err
    assert re.match(r"reality-check: no published table can be compared with quickstart", said)
    assert len(said.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["experiment.yaml"], "nothing is written"
    with pytest.raises(SystemExit) as ended:
        cli.main(["report", str(tmp_path), "--compare", "others"])
    assert ended.value.code == 2
