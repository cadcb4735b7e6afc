from __future__ import annotations

import os

import pytest

from reality_check.utils.passwords import (
    PASSWORD_VARIABLE,
    lent_password,
    password_for,
    split_password,
    without_password,
)


@pytest.mark.parametrize(
    ("url", "bare", "password"),
    [
        ("postgresql://tom:secret@host/db", "postgresql://tom@host/db", "secret"),
        ("mysql+pymysql://tom:a%40b@host:1/db?x=1", "mysql+pymysql://tom@host:1/db?x=1", "a@b"),
        ("postgresql://tom:p@ss@host/db", "postgresql://tom@host/db", "p@ss"),
        ("postgresql://tom:p/s?@host/db?x=a@b", "postgresql://tom@host/db?x=a@b", "p/s?"),
        ("postgresql://tom:@host/db", "postgresql://tom@host/db", ""),
        ("postgresql://tom@host/db?password=secret", "postgresql://tom@host/db", "secret"),
        ("postgresql://h/db?passwd=secret&x=1", "postgresql://h/db?x=1", "secret"),
        ("postgresql://tom@host:5/db", "postgresql://tom@host:5/db", None),
        ("sqlite:////a:b@c/studies.db", "sqlite:////a:b@c/studies.db", None),
    ],
)
def test_the_password_is_taken_out_of_the_url(url: str, bare: str, password: str | None) -> None:
    assert split_password(url) == (bare, password)
    assert without_password(bare) == bare


def test_the_password_comes_from_the_url_or_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, "lent")
    assert password_for("postgresql://tom:own@host/db")[1] == "own"
    assert password_for("postgresql://tom@host/db")[1] == "lent"
    assert password_for("sqlite:///studies.db")[1] is None
    with lent_password("postgresql://tom:own@host/db"):
        assert os.environ[PASSWORD_VARIABLE] == "own"
    with lent_password("postgresql://tom@host/db"):
        assert os.environ[PASSWORD_VARIABLE] == "lent"
    assert os.environ[PASSWORD_VARIABLE] == "lent"
    monkeypatch.delenv(PASSWORD_VARIABLE)
    with lent_password("postgresql://tom:own@host/db"):
        assert os.environ[PASSWORD_VARIABLE] == "own"
    assert PASSWORD_VARIABLE not in os.environ
