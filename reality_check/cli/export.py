"""``reality-check export``: finished results in the formats of other places, and their cards."""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reality_check.cli.parsing import Commands, add_command
from reality_check.utils.errors import UsageError
from reality_check.utils.exit_status import DONE

if TYPE_CHECKING:
    import pyarrow

    from reality_check.config.schema import Experiment
    from reality_check.papers.claim_table import ClaimRow
    from reality_check.report.analysis import Analysis
    from reality_check.report.sections.blocks import Block, Section

_DETAILS = """\
hub        a data set for the Hugging Face Hub: card, Parquet, pack, Croissant
croissant  CSV files, with Croissant 1.1 metadata that describes them
csv        scores, trials, baselines, comparisons and claims as CSV
card       what a loss scores, under which protocol, by which verdict: Markdown

Nothing leaves this machine without --push, which uploads the folder. Others
take methods from it: methods: [{from: hf://datasets/OWNER/NAME/X.pack@main}].

examples:
  reality-check export runs/mine --to csv --out mine_csv
  reality-check export mine.pack --to card --method my_loss --out cards
  reality-check export mine.pack --to hub --out hub --push me/my-results
"""


def add_parser(commands: Commands) -> None:
    title = "write a finished run for the Hugging Face Hub, as CSV, or as cards of losses"
    command = add_command(commands, "export", run, title, _DETAILS)
    command.add_argument("dir", type=Path, metavar="DIR", help="output folder, or a pack")
    command.add_argument(
        "--to", choices=("hub", "croissant", "csv", "card"), required=True, help="what to write"
    )
    command.add_argument(
        "--out", type=Path, metavar="FOLDER", required=True, help="folder to write, new or empty"
    )
    command.add_argument("--method", help="of card: this method only")
    command.add_argument(
        "--license", help="of hub and croissant: the results' licence, e.g. cc-by-4.0"
    )
    command.add_argument(
        "--push", metavar="OWNER/NAME", help="of hub: upload it to this data set of the Hub"
    )


@dataclass(frozen=True)
class _Export:
    """What is exported: only what is in the pack."""

    options: argparse.Namespace
    pack: Path
    experiment: Experiment
    analysis: Analysis
    claims: Sequence[ClaimRow]


def run(options: argparse.Namespace) -> int:
    import tempfile

    from reality_check.registry.hub import check_target, push
    from reality_check.utils.files import atomic_write

    for option, formats in {"method": "card", "license": "hub or croissant", "push": "hub"}.items():
        if getattr(options, option) is not None and options.to not in formats:
            raise UsageError(f"--{option} is for --to {formats} only.")
    out = options.out
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"--out {out} is there already; name a new or empty folder.")
    if options.push is not None:
        check_target(options.push)
    with tempfile.TemporaryDirectory() as folder:
        export = _opened(options, Path(folder))
        files = dict(_cards(export)) if options.to == "card" else _data(export)
    for name, content in files.items():
        atomic_write(out / name, content)
    print(f"{out}: {', '.join(files)}")
    if options.push:
        print(f"Pushed: {push(out, options.push)}")
    return DONE


def _opened(options: argparse.Namespace, folder: Path) -> _Export:
    """Open a pack, or pack a finished output folder into a temporary folder and open that."""
    from reality_check.api import pack
    from reality_check.papers.claim_table import claim_rows
    from reality_check.registry.pack import read_pack, unpacked
    from reality_check.report.analysis import Analysis
    from reality_check.report.collect import collect
    from reality_check.report.summary import Summary

    path = options.dir
    if path.is_dir():
        path = pack(path, folder / f"{path.resolve().name}.pack")
    content = read_pack(path)
    analysis = Analysis(Summary(collect(unpacked(content))))
    return _Export(options, path, content.experiment, analysis, claim_rows([], [path]))


def _data(export: _Export) -> dict[str, bytes]:
    """Return the files of the formats other than cards, by name."""
    from reality_check.config.yaml_text import dump_yaml
    from reality_check.registry.croissant import croissant_json
    from reality_check.report.cards import first_screen
    from reality_check.report.sections.verdict import headline
    from reality_check.report.tables import csv_of

    options, summary = export.options, export.analysis.summary
    is_hub = options.to == "hub"
    suffix = "parquet" if is_hub else "csv"
    files = {
        f"{name}.{suffix}": csv_of(records[0], (record.values() for record in records)).encode()
        for name, records in _records(export).items()
        if records
    }
    if options.to == "csv":
        return files
    tables = {name: _arrow(content) for name, content in files.items()}
    if is_hub:
        files = {name: _parquet(table) for name, table in tables.items()}
    licensed = {"license": options.license} if options.license else {}
    front = {
        "tags": ["metric-learning", "pytorch-metric-learning", "reality-check"],
        "configs": [{"config_name": Path(file).stem, "data_files": file} for file in files],
    }
    if is_hub:
        files[export.pack.name] = export.pack.read_bytes()
    about = {"name": summary.results.name, "description": headline(summary), **licensed}
    files["croissant.json"] = croissant_json(about, files, tables).encode()
    if is_hub:
        card = first_screen(summary, _usage(export))
        files["README.md"] = f"---\n{dump_yaml(licensed | front)}---\n\n{card}".encode()
    return files


def _arrow(content: bytes) -> pyarrow.Table:
    """Return a CSV file as a table, whose columns get the types of their values."""
    try:
        import pyarrow
        from pyarrow import csv
    except ImportError:
        raise UsageError("hub and croissant need: pip install 'pml-extensions[hub]'.") from None
    return csv.read_csv(
        pyarrow.BufferReader(content),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(null_values=[""], strings_can_be_null=True),
    )


def _parquet(table: pyarrow.Table) -> bytes:
    from pyarrow import parquet

    stream = io.BytesIO()
    parquet.write_table(table, stream)
    return stream.getvalue()


def _records(export: _Export) -> dict[str, Sequence[Mapping[str, Any]]]:
    """Return the tables, by name; some may be empty."""
    from reality_check.report.sections.verdict import comparison_records
    from reality_check.report.tables import result_records

    results = export.analysis.summary.results
    return {
        "results": result_records(results),
        "trials": results.trials(),
        "baselines": [row.record() for row in results.baselines],
        "comparisons": comparison_records(export.analysis),
        "claims": [
            {
                **row.claim.plain(include={"name", "source", "text"}),
                "criterion": _plain(row.criterion),
                "outcome": row.outcome,
                "verdict": _plain(row.verdict),
            }
            for row in export.claims
        ],
    }


def _plain(text: str) -> str:
    """Return Markdown without its signs."""
    return text.replace("`", "").replace("**", "")


def _cards(export: _Export) -> Iterator[tuple[str, bytes]]:
    """Yield the card of the named method, or of each, with its file name."""
    from reality_check.config.yaml_text import dump_yaml
    from reality_check.registry.pack import protocol_hash
    from reality_check.report.cards import loss_card
    from reality_check.report.sections.blocks import Code
    from reality_check.report.wording import file_name
    from reality_check.utils.text import nearest

    names, wanted = [m.name for m in export.experiment.methods], export.options.method
    if wanted not in (None, *names):
        raise UsageError(
            f"{export.options.dir} has no method {wanted!r}; it has {', '.join(names)}."
            f"{nearest(wanted, names)}"
        )
    experiment = export.experiment
    for name in [wanted] if wanted else names:
        claims = [
            f"{row.claim.text} ({row.claim.source}): {_plain(row.verdict)}"
            for row in export.claims
            if any(name in pair for pair in row.claim.pairs)
        ]
        settings = dump_yaml(experiment.method(name).plain(exclude_defaults=True))
        usage = _usage(export, f", methods: [{name}]", "It was run as:", Code(settings, "yaml"))
        card = loss_card(export.analysis.summary, name, protocol_hash(experiment), claims, usage)
        yield f"{file_name(name, names)}.md", card.encode()


def _usage(export: _Export, methods: str = "", *further: Block) -> Section:
    """Return a section that says how a new loss is compared with these results."""
    from reality_check.report.sections.blocks import Code, Section

    source, pushed = export.pack.name, export.options.push
    if pushed:
        source = f"hf://datasets/{pushed}/{source}@main"
    lines = f"methods:\n  - {{from: {source}{methods}}}\n  - {{name: mine, loss: my_losses.Mine}}"
    yaml = (
        "In a YAML of reality-check (pml-extensions), without training again:",
        Code(lines, "yaml"),
    )
    return Section("use", "Comparing a new loss", (*yaml, *further))
