"""The block ``command:``, and what is wrong with one that cannot work."""

from __future__ import annotations

import pytest

from reality_check.config.command import Command

VALID = {"submit": "qsub {command}", "state": "qstat -j {job}", "end": "qdel {job}"}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"submit": "qsub {comand}"}, r"there is no {comand}, but {command}, .*mean 'command'"),
        ({"submit": "qsub -o {log}"}, r"'qsub -o {log}' starts no worker: it needs {command}"),
        ({"submit": "qsub {command} | awk '{print $3}'"}, r"no {print \$3}.*write {{ for a brace"),
        ({"submit": "qsub {command"}, r"expected '}' .* in 'qsub {command'; write {{ for a brace"),
        ({"submit": "qsub {command} {job}"}, r"there is no {job}"),
        ({"submit": "qsub {}"}, r"there is no {}"),
        ({"state": "qstat"}, r"'qstat' does not say which job: it needs {job}"),
        ({"end": "qdel {worker}"}, r"there is no {worker}, but {job}, {folder}"),
        ({"number": r"\d+"}, r"needs one group in parentheses, the job's number, and has 0"),
        ({"number": r"(a)(b)"}, r"and has 2"),
        ({"gone": "(unknown"}, r"'\(unknown' is not a regular expression: missing \)"),
    ],
)
def test_blocks_that_cannot_work(change: dict[str, str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Command(**VALID | change)


def test_braces_of_the_shell_are_written_twice() -> None:
    made = Command(**VALID | {"state": "kubectl get job {job} -o jsonpath='{{.status}}'"})
    assert made.state.format(job=1) == "kubectl get job 1 -o jsonpath='{.status}'"
