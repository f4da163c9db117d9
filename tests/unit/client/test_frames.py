"""A signed send is encoded at once, byte for byte as any request that is signed."""

from __future__ import annotations

import pytest

from rmq.auth.credentials import Credentials, Signer
from rmq.client.frames import SendFrames
from rmq.client.message import Message, MessageQueue
from rmq.client.sending import SendEncoder
from rmq.client.settings import ProducerSettings
from rmq.protocol import frame
from rmq.protocol.signature import verify

ACCOUNT = Credentials("RocketMQ", "12345678")
WITH_TOKEN = Credentials('key "ä"', "s" * 100, "token/+=")
QUEUES = [MessageQueue("T", "broker-a", 3), MessageQueue("ü", 'b"\\', 0)]
MESSAGES = [
    Message("T", b"body"),
    Message("T", bytes(range(256)) * 4, tags="TagA", keys=["k1", "k2"], flag=-5, properties={"a": 'ä"\\\n', "b": "漢"}),
    Message("T", b"x", delay_level=3, wait_store_ok=False),
]


def frames(**options: object) -> tuple[SendEncoder, SendFrames]:
    settings = ProducerSettings.of(options)
    return SendEncoder("pg", settings, lambda _: "ID", lambda: 1_700_000_000_000), SendFrames("pg", settings)


@pytest.mark.parametrize("oneway", [False, True])
@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("account", [ACCOUNT, WITH_TOKEN])
def test_it_is_the_frame_of_the_same_command_signed(account: Credentials, queue: MessageQueue, oneway: bool) -> None:
    encoder, made = frames(unit_mode=oneway)
    sends = [*map(encoder.prepare, MESSAGES), encoder.prepare_batch(MESSAGES[:2]), encoder.prepare_half(MESSAGES[1])]
    for send in sends * 2:
        command = frame.decode(made.frame(send, queue, -7, None, oneway=oneway)[4:])
        Signer(account).sign(command)
        signed = made.frame(send, queue, -7, account, oneway=oneway)
        assert signed == frame.encode(command)
        back = frame.decode(signed[4:])
        assert verify(back.ext or {}, back.body, account.secret_key)


def test_a_client_that_comes_as_somebody_else_signs_as_that_one() -> None:
    encoder, made = frames()
    send = encoder.prepare(MESSAGES[0])
    for account in (ACCOUNT, WITH_TOKEN, ACCOUNT):
        back = frame.decode(made.frame(send, QUEUES[0], 1, account)[4:])
        assert (back.ext or {})["AccessKey"] == account.access_key
        assert verify(back.ext or {}, back.body, account.secret_key)
    assert "Signature" not in (frame.decode(made.frame(send, QUEUES[0], 1, None)[4:]).ext or {})
