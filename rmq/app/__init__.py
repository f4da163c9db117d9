"""The application layer: typed listeners, dependencies, middlewares, health (docs/app.md).

::

    from rmq.app import App, Topic

    app = App("payments", namesrv="127.0.0.1:9876")
    orders = Topic[Order]("orders")


    @app.listener(orders, "new || changed")
    async def pay(order: Order) -> None: ...

``rmq run module:app`` runs it.
"""

from rmq.app.application import App
from rmq.app.depends import Call, Depends
from rmq.app.handler import BadPayload
from rmq.app.payload import PayloadError
from rmq.app.topic import Topic

__all__ = ["App", "BadPayload", "Call", "Depends", "PayloadError", "Topic"]
