"""Every request of the recording asked again of ours, in the same order: as Java is, and as we are unless told."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from rmq.protocol.command import Command, SerializeType
from rmq.testing.cluster import Cluster
from tests.support.accounts import by, home
from tests.support.raw_peer import RawPeer, subscribe

CASES: list[dict[str, Any]] = [
    json.loads(line) for line in (Path(__file__).parent / "answers-acl-4.9.4.jsonl").read_text().splitlines()
]
FILE = """\
accounts:
- accessKey: PBADMIN12
  secretKey: 12345678
  admin: true
- accessKey: PBUSER123
  secretKey: 12345678
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - PB_A=PUB|SUB
  - PB_P=PUB
  - PB_S=SUB
  groupPerms:
  - PB_AG=SUB
- accessKey: PBWHITE12
  secretKey: 12345678
  whiteRemoteAddress: 127.0.0.1
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
- accessKey: PBNEW1234
  secretKey: 12345678
  admin: false
"""
AS_JAVA = {
    "aclWhiteListSkipsChecks": "true", "aclTraceTopicOpen": "true", "aclUncheckedCodes": "true",
    "aclConfigShowsSecrets": "true",
}  # fmt: skip
#: Cases that we answer otherwise, whatever is set, with what we answer: code and the beginning of the remark.
OTHERWISE = {
    # code 361 is served here
    "acl.pull.wrong_type_code_361": (0, ""),
    "acl.query.unique_flag_signed": (22, "can not find message"),
    # secrets are not repeated
    "acl.update.short_key": (209, "The accessKey=ab and secretKey cannot be null and length should longer than 6"),
    "acl.white.bad": (211, "'10.x.y' is no address pattern"),
}
_DENIED = "org.apache.rocketmq.acl.common.AclException: "
#: And those that are answered otherwise unless Java's way is set.
SAFE = {
    "acl.send.batch_denied_topic": (1, _DENIED + "No default permission for topic:PB_D"),
    "acl.send.batch_signed": (1, _DENIED + "No default permission for topic:PB_D"),
    "acl.send.retry_v1_other_group": (1, _DENIED + "No default permission for group:PB_ZG"),
    "acl.offset_query_denied_topic": (1, _DENIED + "No default permission for topic:PB_D"),
    "acl.user.config_get": (1, _DENIED + "Need admin permission for request code=26"),
    "acl.white.ok": (211, "127.0.0.1, which asks for this, would be refused with this list"),
}


@pytest.mark.parametrize("as_java", [True, False])
async def test_the_recorded_requests_are_answered_alike(tmp_path: Path, as_java: bool) -> None:
    white = "globalWhiteRemoteAddresses:\n- 10.10.103.*\n" if as_java else ""
    wrong = []
    otherwise = OTHERWISE if as_java else OTHERWISE | SAFE
    async with Cluster(tmp_path / "store", brokers=0) as cluster:
        broker = await cluster.start_broker(**home(tmp_path, white + FILE), **(AS_JAVA if as_java else {}))
        async with RawPeer(*broker.address) as peer:
            for case in CASES:
                if case["id"] == "acl.ids.ok":  # the sample has left the heartbeat out
                    assert (await peer.ask(by("PBUSER123", subscribe("PB_AG", "PB_A")))).code == 0
                code, remark = expected(case)
                if case["id"] in otherwise:
                    assert otherwise[case["id"]] != (code, remark)
                    code, remark = otherwise[case["id"]]
                answer = await peer.ask(request_of(case))
                if answer.code != code or not (answer.remark or "").startswith(remark):
                    wrong.append((case["id"], answer.code, answer.remark, "and not", code, remark))
                if as_java and case["id"] == "acl.config":
                    recorded = json.loads(case["response"]["body"]["text"])
                    ours = json.loads(answer.body)
                    assert ours["globalWhiteAddrs"] == recorded["globalWhiteAddrs"]
                    for one, other in zip(ours["plainAccessConfigs"], recorded["plainAccessConfigs"], strict=True):
                        assert {**one, "defaultGroupPerm": None, "defaultTopicPerm": None} == {
                            "defaultGroupPerm": None, "defaultTopicPerm": None,
                            **{name: value for name, value in other.items() if not name.startswith("default")},
                        }  # fmt: skip
    assert wrong == []


def expected(case: dict[str, Any]) -> tuple[int, str]:
    """Code and remark; of an exception without the stack frame, which nobody can depend on."""
    remark = case["response"]["remark"] or ""
    if remark.startswith(_DENIED):
        remark = remark.partition(", org.apache")[0]
    return case["response"]["code"], "" if remark == "not set any response code" else remark


def request_of(case: dict[str, Any]) -> Command:
    request = case["request"]
    kind = SerializeType.JSON if request["ser"] == "JSON" else SerializeType.ROCKETMQ
    body = request.get("body") or {}
    text = base64.b64decode(body["base64"]) if "base64" in body else body.get("text", "").encode()
    ext = request.get("ext")
    return Command(request["code"], ext=None if ext is None else dict(ext), body=text, serialize=kind, version=401)
