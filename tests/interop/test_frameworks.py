"""The programs of docs/frameworks.md, with the frameworks they are for."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from rmq import AdminClient, Message, MessageExt, Producer, PushConsumer
from rmq.testing.cluster import BlockingCluster
from tests.support.daemons import ROOT

for _name in ("fastapi", "flask", "django", "celery"):
    pytest.importorskip(_name, reason=f"{_name} is not installed: pip install 'rmq[frameworks]'")

PROGRAMS = dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", (ROOT / "docs/frameworks.md").read_text(), re.DOTALL))
#: What frameworks warn of is theirs.
pytestmark = pytest.mark.filterwarnings("default")

FIRST = "CONSUME_FROM_FIRST_OFFSET"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingCluster]:
    with BlockingCluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(autouse=True)
def _address(cluster: BlockingCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv_addr)
    for one in ("orders", "bills"):
        with AdminClient() as admin:
            admin.create_and_update_topic(cluster.broker_addr, one)


@pytest.fixture
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[types.ModuleType]:
    """The program whose name the test's parameter is, as a module."""
    name = request.param
    path = tmp_path / f"{name}.py"
    path.write_text(PROGRAMS[name])
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    try:
        spec.loader.exec_module(made)
        yield made
    finally:
        del sys.modules[name]


class Reader:
    """What comes to a topic from now on."""

    def __init__(self, topic: str) -> None:
        self._seen: dict[str, MessageExt] = {}
        self._came: SimpleQueue[MessageExt] = SimpleQueue()
        self._consumer = PushConsumer(f"reader_{topic}", consume_from_where=FIRST)
        self._consumer.on(topic)(lambda message: self._came.put(message))

    def __enter__(self) -> Reader:
        self._consumer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.shutdown()

    def wait_for(self, body: str) -> MessageExt:
        while body not in self._seen:
            message = self._came.get(timeout=60)
            self._seen[message.body.decode()] = message
        return self._seen[body]


@pytest.mark.parametrize("program", ["fastapi_shop"], indirect=True)
def test_fastapi(program: Any) -> None:
    from fastapi.testclient import TestClient

    with TestClient(program.web) as web, Reader("orders") as reader:
        refused = web.post("/orders", json={"number": "x"})
        assert refused.status_code == 422
        placed = web.post("/orders", json={"number": 7, "cents": 150})
        assert placed.status_code == 202
        assert reader.wait_for('{"number":7,"cents":150}').msg_id == placed.json()["id"]
        assert any(web.get("/paid").json() == [7] for _ in range(20_000))
    assert program.messages.missing


@pytest.mark.parametrize("program", ["flask_shop"], indirect=True)
def test_flask(program: Any) -> None:
    web = program.web.test_client()
    with Reader("orders") as reader:
        placed = web.post("/orders", json={"number": 8})
        assert placed.status_code == 202
        assert reader.wait_for('{"number": 8}').keys == "order-8"
    program.producer.shutdown()


@pytest.mark.parametrize("program", ["django_shop"], indirect=True)
def test_django(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import django
    from django.conf import settings

    settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}, INSTALLED_APPS=[]
    )
    django.setup()
    from django.db import connection, models
    from django.test import RequestFactory

    class Order(models.Model):
        text = models.TextField()

        class Meta:
            app_label = "shop"

    monkeypatch.setitem(sys.modules, "shop", types.ModuleType("shop"))
    found = types.ModuleType("shop.models")
    found.Order = Order  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop.models", found)
    with connection.schema_editor() as editor:
        editor.create_model(Order)
    request = RequestFactory().post("/orders", {"text": "x"})
    with Reader("orders") as reader:
        assert program.place(request).status_code == 202
        with pytest.raises(KeyError):  # rolled back: nobody is told
            program.place(RequestFactory().post("/orders", {}))
        assert program.place(request).status_code == 202
        numbers = [order.pk for order in Order.objects.all()]
        assert [reader.wait_for(f'{{"number": {number}}}').keys for number in numbers] == ["order-1", "order-2"]
    program.producer.shutdown()
    connection.close()


def test_celery(cluster: BlockingCluster, tmp_path: Path) -> None:
    (tmp_path / "celery_shop.py").write_text(
        PROGRAMS["celery_shop"]
        + """
folder = os.environ["CELERY_FOLDER"]
tasks.conf.broker_transport_options = {"data_folder_in": folder, "data_folder_out": folder}
"""
    )
    (tmp_path / "queue").mkdir()
    environment = {
        **os.environ,
        "CELERY_BROKER": "filesystem://",
        "CELERY_FOLDER": str(tmp_path / "queue"),
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
    }
    worker = [sys.executable, "-m", "celery", "-A", "celery_shop", "worker", "--concurrency", "2", "-P", "prefork"]
    consumer = [sys.executable, "-c", "import celery_shop; celery_shop.hand_over()"]
    with Producer("pg") as producer, Reader("bills") as reader:
        for number in range(3):
            producer.send(Message("orders", f"order {number}"))
        running = [
            subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            for command in (worker, consumer)
        ]
        try:
            for number in range(3):
                reader.wait_for(f"bill for order {number}")
        finally:
            for process in running:
                process.terminate()
            told = [process.communicate(timeout=60)[0].decode() for process in running]
        assert [process.returncode for process in running] == [0, 0], told
