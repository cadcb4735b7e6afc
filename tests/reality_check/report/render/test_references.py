"""references.bib: well-formed entries of what was used, and only of that."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from support.experiments import EXPERIMENTS, shipped

from reality_check.config.classes import named_classes, registered_names
from reality_check.config.named import named_method
from reality_check.config.yaml_text import read_yaml
from reality_check.report.render.references import bibtex, references_bib
from reality_check.results import ExperimentResults, Importance, MethodResults
from reality_check.utils.config_files import config_files, configs_root, paper_files, shipped_files

DATA = read_yaml(configs_root() / "references.yaml")
ENTRIES: dict[str, dict[str, Any]] = DATA["entries"]
#: What BibTeX's standard styles ask for, and for misc what makes an entry of use.
REQUIRED = {
    "article": {"author", "title", "journal", "year"},
    "inproceedings": {"author", "title", "booktitle", "year"},
    "techreport": {"author", "title", "institution", "year"},
    "misc": {"author", "title", "year"},
}
#: What every run uses.
ALWAYS = {"akiba2019optuna", "musgrave2020pml", "paszke2019pytorch", "pmlextensions"}


def parse(text: str) -> dict[str, dict[str, str]]:
    """Read BibTeX by its own rules: text up to an @ is comment, values nest braces."""
    found: dict[str, dict[str, str]] = {}
    at = text.find("@")
    while at >= 0:
        head = re.compile(r"@(\w+)\{([^,\s{}]+),").match(text, at)
        assert head is not None, f"no entry at {text[at : at + 40]!r}"
        end = _closing(text, text.index("{", at))
        assert head[2] not in found, f"{head[2]} twice"
        found[head[2]] = {"type": head[1], **_fields(text[head.end() : end])}
        at = text.find("@", end)
    return found


def _closing(text: str, opening: int) -> int:
    depth = 0
    for position in range(opening, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return position
    raise AssertionError(f"a brace is never closed: {text[opening : opening + 60]!r}")


def _fields(body: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    rest = body.strip()
    while rest:
        head = re.match(r"(\w+) = \{", rest)
        assert head is not None, f"no field at {rest[:40]!r}"
        end = _closing(rest, head.end() - 1)
        assert head[1] not in fields
        fields[head[1]] = rest[head.end() : end]
        rest = rest[end + 1 :].lstrip(",").strip()
    return fields


def results_of(name: str, **changes: Any) -> ExperimentResults:
    """An experiment of the package before its first trial."""
    experiment = shipped(name)
    made = ExperimentResults(
        name=experiment.name,
        protocol=experiment.protocol.name,
        reference=experiment.protocol.reference,
        finished=False,
        methods=tuple(MethodResults(method.name, method.loss) for method in experiment.methods),
        rows=(),
        config=experiment.plain(),
    )
    return dataclasses.replace(made, **changes)


@pytest.mark.parametrize("key", sorted(ENTRIES))
def test_every_entry_has_what_bibtex_asks_for(key: str) -> None:
    fields = ENTRIES[key]
    assert set(fields) >= REQUIRED[fields["type"]]
    assert re.fullmatch(r"\d{4}", str(fields["year"]))
    text = bibtex(key, fields)
    assert text.isascii(), "accents are written for BibTeX"
    written = {name: str(value) for name, value in fields.items()}
    assert parse(text) == {key: written}
    for author in str(fields["author"]).split(" and "):
        assert re.fullmatch(r"[^,]+, [^,]+|\{.*\}", author.strip()), author


def test_every_entry_is_cited_by_something_and_every_citation_has_one() -> None:
    groups = [part for name, part in DATA.items() if name not in ("entries", "faiss")]
    cited = {key for part in groups for keys in part.values() for key in keys} | {*DATA["faiss"]}
    assert cited == set(ENTRIES)


@pytest.mark.parametrize("kind", ["loss", "miner"])
def test_every_class_that_goes_by_a_plain_name_is_known(kind: str) -> None:
    part = DATA[{"loss": "losses", "miner": "miners"}[kind]]
    assert not set(registered_names(kind)) - set(part)


def test_every_method_and_data_set_of_the_package_has_its_sources() -> None:
    for name in shipped_files("methods"):
        method = named_method(name)
        assert DATA["losses"][method.loss.rpartition(".")[2]], name
        for cls, kind in named_classes(method.arguments):
            assert (
                kind not in ("loss", "miner")
                or cls in DATA[f"{kind}es" if kind == "loss" else "miners"]
            )
    for name in shipped_files("datasets"):
        assert "Without an entry" not in _of_data_set(name), name


def _of_data_set(name: str) -> str:
    dataset = {"name": name, **read_yaml(config_files("datasets")[name])}
    results = results_of("quickstart")
    return references_bib(
        dataclasses.replace(results, config=results.config | {"dataset": dataset})
    )


@pytest.mark.parametrize("name", [*EXPERIMENTS, *paper_files()])
def test_every_experiment_of_the_package_is_cited_in_full(name: str) -> None:
    text = references_bib(results_of(name))
    assert "Without an entry" not in text
    assert set(parse(text)) >= ALWAYS


def test_only_what_was_used_is_there() -> None:
    keys = set(parse(references_bib(results_of("cub200_mlrc_batch256"))))
    assert {"wah2011cub", "ioffe2015batchnorm", "deng2009imagenet", "musgrave2020reality"} <= keys
    assert {"wang2019multisimilarity", "holm1979"} <= keys
    absent = {
        "krause2013cars",
        "he2016resnet",
        "douze2024faiss",
        "hutter2014fanova",
        "yang2023sgsl",
    }
    assert not keys & absent
    quick = set(parse(references_bib(results_of("quickstart"))))
    assert "hunter2007matplotlib" in quick, "the glyphs are drawn from its fonts"
    assert "bergstra2011tpe" not in quick, "its search is random"
    assert not quick & {"ioffe2015batchnorm", "deng2009imagenet", "wah2011cub"}


def test_a_papers_table_cites_the_paper_and_no_search() -> None:
    keys = set(parse(references_bib(results_of("papers/001_normalized_softmax/table3_cub200"))))
    assert {"zhai2019classification", "he2016resnet"} <= keys
    assert "bergstra2011tpe" not in keys, "nothing is searched"


def test_faiss_and_fanova_are_cited_where_they_were_used() -> None:
    results = results_of("quickstart")
    protocol = results.config["protocol"] | {"final_metrics": ["NMI"]}
    method = dataclasses.replace(results.methods[0], importance=Importance({"a": 1.0}, 0.1, 20))
    used = dataclasses.replace(
        results, config=results.config | {"protocol": protocol}, methods=(method,)
    )
    keys = set(parse(references_bib(used)))
    assert {"douze2024faiss", "hutter2014fanova"} <= keys
    assert "holm1979" not in keys, "one method: nothing is compared"


def test_what_is_the_users_own_is_named_in_a_comment() -> None:
    results = results_of("quickstart")
    config = results.config | {
        "dataset": {"name": "my_photographs", "reader": "image_folder"},
        "model": {"trunk": "my_models.Trunk", "weights": "none"},
        "methods": [
            {"name": "m@rgin", "arguments": {}, "miner": {"class": "my_miners.Near"}},
            {"name": "memory", "arguments": {"loss": {"class": "my_losses.Inner"}}},
        ],
    }
    methods = (
        MethodResults("m@rgin", "my_losses.ContrastiveLoss"),
        MethodResults("memory", "CrossBatchMemory"),
    )
    text = references_bib(dataclasses.replace(results, config=config, methods=methods))
    comment = text.partition("Without an entry")[2].partition("\n\n")[0]
    for own in (
        "m(at)rgin: my_losses.ContrastiveLoss",
        "m(at)rgin: my_miners.Near",
        "memory: my_losses.Inner",
        "data set my_photographs",
        "trunk my_models.Trunk",
    ):
        assert own in comment
    keys = set(parse(text))
    assert "wang2020xbm" in keys
    assert "hadsell2006contrastive" not in keys, "a class of the user's of the same name"


def test_the_comment_says_what_an_entry_stands_for(finished: ExperimentResults) -> None:
    text = references_bib(finished)
    above = text.partition("@article{demoor2024warping")[0].splitlines()[-1]
    assert above.startswith("% loss of warped; loss of my_loss_50%;")
