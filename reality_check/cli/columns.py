"""Tables on a terminal of any width, in which names are never shortened."""

from __future__ import annotations

from collections.abc import Container

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table


def name_table(*columns: str, right: Container[str] = ()) -> Table:
    """Return an empty table whose first column, of names, is never shortened.

    Args:
        columns: the headings.
        right: headings of the columns to align right.
    """
    table = Table(box=None, pad_edge=False)
    for column in columns:
        justify = "right" if column in right else "left"
        table.add_column(column, overflow="fold", no_wrap=column == columns[0], justify=justify)  # type: ignore[arg-type]
    return table


def print_table(table: Table) -> None:
    """Print a table, wider than the terminal if its longest words need that."""
    console = Console()
    # Measured on a terminal that is wider than any table.
    min_width = Measurement.get(console, console.options.update(width=1000), table).minimum
    Console(width=max(console.width, min_width)).print(table)
