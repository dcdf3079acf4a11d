from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import UserError
from orchestrator.records.store import PASSWORD_ENV, Address, mask

POSTGRES = "postgresql://ann@db.example:5432/studies"


@pytest.mark.parametrize(
    ("given", "shown", "url"),
    [
        (POSTGRES, POSTGRES, "postgresql+psycopg://ann@db.example:5432/studies"),
        ("postgresql://ann:s3cret@h/d", "postgresql://ann@h/d", "postgresql+psycopg://ann:s3cret@h/d"),
        ("postgresql+psycopg2://ann:a%40b@h/d?x=1", "postgresql+psycopg2://ann@h/d?x=1", None),
        ("postgresql:///d?host=/run/pg", "postgresql:///d?host=/run/pg", "postgresql+psycopg:///d?host=/run/pg"),
        ("mysql+pymysql://h/d", "mysql+pymysql://h/d", None),
    ],
)
def test_a_database_is_shown_without_its_password(given: str, shown: str, url: str | None) -> None:
    address = Address.parse(given)
    assert address.text == shown
    assert address.database_url() == (url or given)
    assert "s3cret" not in repr(address)
    assert (address.is_journal, address.proxy) == (False, None)


def test_the_password_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD_ENV, "p@ss/word")
    assert Address.parse(POSTGRES).database_url() == ("postgresql+psycopg://ann:p%40ss%2Fword@db.example:5432/studies")
    # One in the address is meant.
    assert Address.parse("postgresql://ann:own@h/d").database_url() == "postgresql+psycopg://ann:own@h/d"
    assert Address.parse("postgresql://h/d").database_url() == "postgresql+psycopg://h/d"


def test_the_journal_and_a_proxy_are_addresses_too() -> None:
    assert Address.parse("journal").is_journal
    assert Address.parse("grpc://head:13000").proxy == ("head", 13000)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("sqlite:///study.db", "sqlite locks up"),
        ("sqlite+pysqlite:////tmp/x", "sqlite locks up"),
        ("study.db", "is no address of a storage"),
        ("jornal", "is no address of a storage"),
        ("grpc://head", "is grpc://HOST:PORT"),
        ("grpc://head:1/x", "is grpc://HOST:PORT"),
        ("postgresql://h:port/d", "Port"),
        ("postgresql://h/d?password=s3cret", "belongs before the @"),
        ("postgresql://ann:/s3cret@h/d", "write / . # of a password as %2F"),
        ("postgresql://ann:x?s3cret@h/d", "Port|write / . # of a password as %2F"),
    ],
)
def test_what_is_no_address_is_refused_in_one_line(given: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        Address.parse(given, where="a.yaml: storage")
    assert str(error.value).startswith("a.yaml: storage: ")
    assert "s3cret" not in str(error.value)
    assert "\n" not in str(error.value)


@settings(max_examples=60)
@given(
    password=st.text(alphabet="abcXYZ019-._~!$&'()*+,;=%/?#:@", min_size=6), around=st.sampled_from(["{}", "a {} b"])
)
def test_no_password_stays_in_a_text(password: str, around: str) -> None:
    assert mask(around.format(f"postgresql+psycopg://ann:{password}@h:5432/d")) == around.format(
        "postgresql+psycopg://ann@h:5432/d"
    )


def test_what_is_no_password_stays() -> None:
    assert mask("postgresql://h/d?password=s3cret&x=1") == "postgresql://h/d?password=***&x=1"
    for text in ("at 12:30 mail a@b to http://h:80/x?y=1", "postgresql://ann@h:5432/d", "grpc://h:1"):
        assert mask(text) == text
