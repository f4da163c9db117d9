"""Every request code is served by the broker, or listed as not served with the reason."""

from __future__ import annotations

from pathlib import Path

from rmq.broker.admin.unsupported import UNSUPPORTED
from rmq.protocol.codes import RequestCode
from rmq.testing.cluster import Cluster


async def test_every_code_is_routed_or_listed(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        served = set(cluster.brokers[0].codes)
    every = {int(code) for code in RequestCode}
    listed = {int(code) for code in UNSUPPORTED}
    assert served <= every
    assert not served & listed
    assert sorted(every - served - listed) == []
    assert all(UNSUPPORTED.values())
