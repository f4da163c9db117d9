"""Bodies of long answers are made in slices, and refused as soon as no frame has room for them."""

from __future__ import annotations

import asyncio
import json

import pytest

from rmq.protocol.errors import ResponseError
from rmq.protocol.frame import MAX_FRAME
from rmq.remoting import long_body
from rmq.remoting.long_body import LongBody, check_length
from rmq.testing.simloop import run


@pytest.mark.parametrize("count", [0, 1, 2, 5_000])
def test_it_is_what_its_items_are(count: int) -> None:
    async def main() -> None:
        items = [f'{{"n":{number},"ü":"{"x" * (number % 50)}"}}' for number in range(count)]
        body = LongBody('{"a":[')
        for item in items:
            await body.item(item)
        body.text('],"b":[')
        await body.item("1")
        await body.item("2")
        data = await body.end("]}")
        assert data == f'{{"a":[{",".join(items)}],"b":[1,2]}}'.encode()
        assert json.loads(data)["b"] == [1, 2]

    run(main())


def test_others_have_a_turn_every_64_kib() -> None:
    async def main() -> None:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.ensure_future(others())
        body = LongBody("[")
        for _ in range(1 << 20 >> 10):
            await body.item('"' + "x" * 1022 + '"')
        await body.end("]")
        task.cancel()
        assert turns >= 16

    run(main())


def test_what_no_frame_has_room_for_is_refused_as_soon_as_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(long_body, "_MOST", 200_000)
        body = LongBody("[")
        for _ in range(196):
            await body.item('"' + "x" * 1_000 + '"')
        with pytest.raises(ResponseError, match="more than the 200000 bytes that a frame has room for"):
            await body.item('"' + "x" * 60_000 + '"')
        short = LongBody("[")
        await short.item("1")
        with pytest.raises(ResponseError, match="more than"):
            await short.end("x" * 200_000)

    run(main())


def test_what_the_number_of_items_tells_is_refused_at_once() -> None:
    check_length(100_000, 160, "queues")
    with pytest.raises(
        ResponseError, match="the answer for 100000 queues would have 17000000 bytes at least"
    ) as refused:
        check_length(100_000, 169, "queues")
    assert str(MAX_FRAME - 4096) in str(refused.value)
