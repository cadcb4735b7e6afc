"""Tables on a terminal: names stay whole, whatever its width."""

from __future__ import annotations

from collections.abc import Container

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table


def name_table(*columns: str, right: Container[str] = ()) -> Table:
    """An empty table whose first column has names: the others shrink before it does.

    Args:
        columns: their headings.
        right: those of them that are set flush right.
    """
    table = Table(box=None, pad_edge=False)
    for column in columns:
        side = "right" if column in right else "left"
        table.add_column(column, overflow="fold", no_wrap=column == columns[0], justify=side)  # type: ignore[arg-type]
    return table


def print_table(table: Table) -> None:
    """Print it, wider than the terminal where the longest words need more: it breaks the lines."""
    console = Console()
    least = Measurement.get(console, console.options.update(width=1000), table).minimum
    Console(width=max(console.width, least)).print(table)
