"""What `make release` checks of an installed wheel; run by the Python that it was installed with.

It runs in an empty folder and imports nothing of the checkout. `--quickstart` trains for minutes.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_BYTES = 2**20
MOST_HELP_SECONDS = 0.3
#: What only torch and PML may have loaded: nothing but this package comes on top of them.
_IMPORTED = "torch pytorch_metric_learning.losses"
_OURS = "losses modules evaluation functional"


def main() -> None:
    """Check everything; an assertion says what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--quickstart", action="store_true")
    parser.add_argument("--workers", default="2")
    options = parser.parse_args()
    os.environ.pop("PYTHONPATH", None)  # the wheel is tested, not a checkout
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # with which all is compiled again each time
    size = options.wheel.stat().st_size
    assert size <= MOST_BYTES, f"the wheel has {size:,} bytes"
    print(f"Python {sys.version.split()[0]}, torch {version('torch')}; wheel: {size:,} bytes")
    program = str(Path(sys.executable).with_name("reality-check"))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in ("pml_extensions", "reality_check"):
            where = run("-c", f"import {name}; print({name}.__file__)").stdout
            assert "site-packages" in where, f"{name} is not the wheel's: {where}"
        check_imports()
        check_help(program)
        check_contract()
        if options.quickstart:
            command = [program, "run", "quickstart", "--workers", options.workers, "--out", "q"]
            subprocess.run(command, check=True)
            assert Path("q/report.html").stat().st_size > 10_000
        os.chdir(ROOT)
    print(f"\nNothing was uploaded. The message of the tag v{version('pml-extensions')}:\n")
    print(tag_message())


def tag_message() -> str:
    """Return the part of the changelog on this version, without marks that git would cut off."""
    number = version("pml-extensions")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    part = changes.partition(f"\n## [{number}] - ")[2].partition("\n## ")[0]
    date, _, text = part.partition("\n")
    assert text, f"CHANGELOG.md has no part [{number}]"
    return f"pml-extensions {number} ({date})\n{text.replace('### ', '')}"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run this Python in the current folder."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def check_imports() -> None:
    """The package alone loads nothing; its parts load nothing that torch and PML have not."""
    assert "pml_extensions" in imported("pml_extensions")
    assert not {"torch", "numpy"} & imported("pml_extensions").keys()
    ours = ", ".join(f"pml_extensions.{part}" for part in _OURS.split())
    before = f"import sys, {', '.join(_IMPORTED.split())}; known = set(sys.modules)"
    code = f"{before}; import {ours}; print(*set(sys.modules) - known)"
    added = {name.partition(".")[0] for name in run("-c", code).stdout.split()}
    others = added - {"pml_extensions"} - sys.stdlib_module_names
    assert not others, f"pml_extensions imports {sorted(others)}"
    times = imported(", ".join(_IMPORTED.split()) + ", " + ours)
    own = sum(used for name, used in times.items() if name.startswith("pml_extensions"))
    print(f"imports: {own / 1e6:.2f} s of {sum(times.values()) / 1e6:.2f} s are pml_extensions'")


def imported(names: str) -> dict[str, int]:
    """Return the microseconds that each imported module took itself, by `-X importtime`."""
    said = run("-X", "importtime", "-c", f"import {names}").stderr
    lines = re.findall(r"^import time: +(\d+) \| +\d+ \| +(\S+)$", said, re.M)
    return {name: int(used) for used, name in lines}


def check_help(program: str) -> None:
    """`reality-check --help` answers at once, by CPU time."""
    seconds = []
    for _ in range(3):
        before = os.times()
        subprocess.run([program, "--help"], check=True, stdout=subprocess.DEVNULL)
        after = os.times()
        children = ("children_user", "children_system")
        seconds.append(sum(getattr(after, name) - getattr(before, name) for name in children))
    print(f"reality-check --help: {min(seconds):.2f} CPU seconds")
    assert min(seconds) < MOST_HELP_SECONDS


def check_contract() -> None:
    """The contract tests of a user's loss, as docs/testing_a_loss.md begins."""
    page = (ROOT / "docs" / "testing_a_loss.md").read_text(encoding="utf-8")
    Path("test_my_loss.py").write_text(page.split("```python\n")[1].split("```")[0], "utf-8")
    begin = time.perf_counter()
    said = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_loss.py").stdout
    print(f"contract: {said.splitlines()[-1]} ({time.perf_counter() - begin:.0f} s)")


if __name__ == "__main__":
    main()
