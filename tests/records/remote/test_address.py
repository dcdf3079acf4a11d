"""Addresses of object storages, and the mistakes in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import UserError
from orchestrator.records.masking import mask, mask_all
from orchestrator.records.remote import checked


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("s3://bucket/runs", "s3://bucket/runs"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket//a//b/", "s3://bucket/a/b"),
        ("gs://bucket/runs/", "gs://bucket/runs"),
        ("abfs://container@account.dfs.core.windows.net/runs", "abfs://container@account.dfs.core.windows.net/runs"),
        ("file:///data/runs", "file:///data/runs"),
        ("memory://runs", "memory://runs"),
    ],
)
def test_an_address_is_taken_without_needless_slashes(given: str, address: str) -> None:
    assert checked(given, where="mirror") == address


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("runs/x", r"^mirror: 'runs/x' is no address; allowed: s3://BUCKET/FOLDER, "),
        ("s4://bucket/x", r"^mirror: 's4://bucket/x': unknown kind of address 's4'; did you mean 's3'\?"),
        ("sftp://host/x", r"^mirror: 'sftp://host/x': unknown kind of address 'sftp'.* Allowed: abfs, file, gs, "),
        ("s3:///x", r"names no bucket"),
        ("file://host/x", r"a folder of this machine is file:///FOLDER"),
        ("file:///", r"a folder of this machine is file:///FOLDER"),
        ("s3://bucket/x?region=y", r"an address has no \?"),
        ("s3://bucket/a b", r"an address has no \?, #, :: or blank"),
        ("s3://bucket/../x", r"has no '\.\.'"),
    ],
)
def test_a_mistake_is_one_line(given: str, line: str) -> None:
    with pytest.raises(UserError, match=line):
        checked(given, where="mirror")


@given(st.text(st.characters(codec="ascii", categories=["L", "N"], include_characters="/:+="), min_size=4, max_size=20))
def test_a_key_in_an_address_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(UserError) as error:
        checked(f"s3://AKIA:Q{secret}@bucket/x", where="mirror")
    assert f"Q{secret}" not in str(error.value)
    assert "AWS_ACCESS_KEY_ID" in str(error.value)


def test_what_a_driver_quotes_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret/k3y")
    assert mask_all("bad key s3cret/k3y at http://u:pw@host/?X-Amz-Signature=ab12&a=1") == (
        "bad key *** at http://u@host/?X-Amz-Signature=***&a=1"
    )
    assert mask("nothing secret: s3://bucket/x") == "nothing secret: s3://bucket/x"
