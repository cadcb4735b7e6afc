"""Write the trials of the four runs into one table a data set, for `reality-check compare`.

    python benchmarks/finetuning/trials.py runs benchmarks/finetuning

It reads runs/head/caltech101/trials.csv and so on. Of a run that is not there, what the table held
stays (docs/finetuning.md).
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path


def main(runs: Path, out: Path) -> None:
    """Join the tables of the depths, whose columns differ."""
    for data in ("caltech101", "omniglot"):
        joined = out / f"{data}.csv"
        held = _rows(joined) if joined.exists() else []
        rows = []
        for depth in ("head", "stage", "adapter", "whole"):
            file = runs / depth / data / "trials.csv"
            kept = [row for row in held if row["method"].startswith(depth)]
            rows += _rows(file) if file.exists() else kept
        columns = list(dict.fromkeys(name for row in rows for name in row))
        with joined.open("w", newline="") as table:
            writer = csv.DictWriter(table, columns)
            writer.writeheader()
            writer.writerows(rows)


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as table:
        return list(csv.DictReader(table))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
