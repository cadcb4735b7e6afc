"""Output whose encoding lacks characters."""

from __future__ import annotations

import io
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reality_check.cli.main import main
from reality_check.utils.printable import printable_output


def printed(text: str, encoding: str) -> bytes:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        printable_output()
        print(text, end="", flush=True)
        return stream.buffer.getvalue()


def test_signs_get_the_plain_ones_that_people_type() -> None:
    assert printed("−2.1 ± 0.3 … é 猫", "ascii") == rb"-2.1 +/- 0.3 ... \xe9 \u732b"


@given(
    st.text(),
    st.sampled_from(["ascii", "cp1252", "euc-jp", "utf-8"]),
)
def test_every_text_is_printed_and_what_an_encoding_has_stays(text: str, encoding: str) -> None:
    output = printed(text, encoding).decode(encoding)
    assert output == text or text.encode(encoding, "ignore").decode(encoding) != text


def test_commands_print_on_an_ascii_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(["claim", "published/mlrc_cub200"]) == 0
    stream.flush()
    assert stream.buffer.getvalue().isascii()
