"""Name every function of more than 60 lines, without its docstring and blank lines."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

LIMIT = 60


def length(function: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> int:
    """Return the lines of a function, from ``def`` on."""
    first = function.body[0]
    text = first.value if isinstance(first, ast.Expr) else None
    is_docstring = isinstance(text, ast.Constant) and isinstance(text.value, str)
    docstring = range(first.lineno, (first.end_lineno or 0) + 1) if is_docstring else range(0)
    numbers = range(function.lineno, (function.end_lineno or 0) + 1)
    return sum(bool(lines[n - 1].strip()) and n not in docstring for n in numbers)


def main(folders: list[str]) -> int:
    """Print file, line, name and lines of each, and return how many there are."""
    count = 0
    for file in sorted(path for folder in folders for path in Path(folder).rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            lines = length(node, source.splitlines())
            if lines > LIMIT:
                print(f"{file}:{node.lineno}: {node.name} has {lines} lines, limit {LIMIT}")
                count += 1
    return count


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
