"""What a client signs (protocol.md 6.1)."""

from __future__ import annotations

import pytest

from rmq.auth.credentials import Credentials, Signer
from rmq.protocol.command import VERSION, Command
from rmq.protocol.signature import SIGNATURE, sign


@pytest.mark.parametrize(
    ("fields", "signed", "version"),
    [
        ({"topic": "T", "key": "k"}, b"an accountkT", VERSION),
        # What a broker of any version takes for the content of this one.
        ({"topic": "T", "key": "k", "_UNIQUE_KEY_QUERY": "true"}, b"an accountkT", 399),
    ],
)
def test_a_query_is_signed_as_every_broker_checks_it(
    fields: dict[str, str | None], signed: bytes, version: int
) -> None:
    request = Command(12, ext=fields)
    Signer(Credentials("an account", "a secret")).sign(request)
    assert request.ext is not None
    assert (request.ext[SIGNATURE], request.version) == (sign(signed, "a secret"), version)
