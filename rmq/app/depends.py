"""What a listener asks for beside the payload, and where it comes from."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from rmq.app.payload import PayloadError
from rmq.client.consumer.listeners import ConsumeContext
from rmq.client.message import MessageExt
from rmq.protocol.errors import ClientError, WrongType
from rmq.protocol.keywords import keywords
from rmq.runtime.pool import on_pool
from rmq.runtime.world import Pool

if TYPE_CHECKING:
    from rmq.app.application import App

__all__ = ["Call", "Depends", "Plan"]


@keywords
class Depends:
    """Marks a parameter whose value a function makes for each message.

    ``def pay(order: Order, db: Session = Depends(session))``, or ``Annotated[Session, Depends(session)]``. What makes
    it may be a function, a coroutine function, or a generator of one value: what stands behind its ``yield`` runs when
    the listener has ended, and sees what it raised. It may ask for the message, the context and the app, and depend on
    others; a message has one value of each.

    :param make: the function.
    """

    def __init__(self, make: Callable[..., Any]) -> None:
        if not callable(make):
            raise WrongType(f"Depends takes a function, not {type(make).__name__}")
        self.make = make


@dataclass(slots=True)
class Call:
    """One message on its way through middlewares to its listener."""

    app: App
    #: Of the listener: its function's name.
    listener: str
    group: str
    message: MessageExt
    context: ConsumeContext
    #: What is wrong with its body, once that is known.
    bad: PayloadError | None = None
    #: What middlewares leave for those behind them and for dependencies.
    state: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """How a function's arguments are made of a message, found out once.

    :param function: the listener, or what makes a dependency.
    :param arguments: by parameter: ``message``, ``context``, ``app``, ``call``, ``payload``, or how it is made.
    :param payload: what its annotation says the payload is; None when it takes none or says nothing.
    """

    function: Callable[..., Any]
    arguments: dict[str, str | Plan]
    payload: Any = None

    @classmethod
    def of(cls, function: Callable[..., Any], *, listener: bool = True) -> Plan:
        """:param listener: whether its first parameter may be the payload.

        :raises ClientError: a parameter that nothing is known for.
        """
        return _plan(function, listener, ())

    @property
    def takes_payload(self) -> bool:
        return "payload" in self.arguments.values()

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function) or inspect.isasyncgenfunction(self.function)

    def makers(self) -> list[Plan]:
        """The plans of everything it depends on."""
        direct = [plan for plan in self.arguments.values() if isinstance(plan, Plan)]
        return [*direct, *(one for plan in direct for one in plan.makers())]

    def run(self, call: Call, payload: Any) -> Any:
        """Call it and everything it depends on, on this thread."""
        with ExitStack() as stack:
            made: dict[Callable[..., Any], Any] = {}
            return self.function(**self._values(call, payload, made, stack))

    def _values(
        self, call: Call, payload: Any, made: dict[Callable[..., Any], Any], stack: ExitStack
    ) -> dict[str, Any]:
        values = {}
        for name, source in self.arguments.items():
            if isinstance(source, str):
                values[name] = _value(source, call, payload)
                continue
            if source.function not in made:
                arguments = source._values(call, payload, made, stack)
                if inspect.isgeneratorfunction(source.function):
                    made[source.function] = stack.enter_context(contextmanager(source.function)(**arguments))
                else:
                    made[source.function] = source.function(**arguments)
            values[name] = made[source.function]
        return values

    async def run_async(self, call: Call, payload: Any, pool: Pool) -> Any:
        """Await it and everything it depends on; plain functions among those run on threads of ``pool``."""
        async with AsyncExitStack() as stack:
            return await self.function(**await self._values_async(call, payload, pool, {}, stack))

    async def _values_async(
        self, call: Call, payload: Any, pool: Pool, made: dict[Callable[..., Any], Any], stack: AsyncExitStack
    ) -> dict[str, Any]:
        values = {}
        for name, source in self.arguments.items():
            if isinstance(source, str):
                values[name] = _value(source, call, payload)
                continue
            make = source.function
            if make not in made:
                arguments = await source._values_async(call, payload, pool, made, stack)
                if inspect.isasyncgenfunction(make):
                    made[make] = await stack.enter_async_context(asynccontextmanager(make)(**arguments))
                elif inspect.iscoroutinefunction(make):
                    made[make] = await make(**arguments)
                elif inspect.isgeneratorfunction(make):
                    made[make] = await stack.enter_async_context(_Threaded(contextmanager(make)(**arguments), pool))
                else:
                    made[make] = await on_pool(pool, partial(make, **arguments))
            values[name] = made[make]
        return values


def _value(source: str, call: Call, payload: Any) -> Any:
    if source == "payload":
        return payload
    return call if source == "call" else getattr(call, source)


class _Threaded:
    """A context manager whose two halves run on threads of a pool."""

    def __init__(self, block: AbstractContextManager[Any], pool: Pool) -> None:
        self._block = block
        self._pool = pool

    async def __aenter__(self) -> Any:
        return await on_pool(self._pool, self._block.__enter__)

    async def __aexit__(self, *error: Any) -> bool | None:
        return await on_pool(self._pool, lambda: self._block.__exit__(*error))


def _plan(function: Callable[..., Any], listener: bool, above: tuple[Callable[..., Any], ...]) -> Plan:
    name = getattr(function, "__qualname__", repr(function))
    if function in above:
        raise ClientError(f"{name} depends on itself")
    try:
        parameters = list(inspect.signature(function).parameters.values())
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError, ValueError) as error:
        raise ClientError(f"the parameters of {name} cannot be looked at: {error}") from None
    arguments: dict[str, str | Plan] = {}
    payload = None
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ClientError(f"{name}: the parameter {parameter.name} has no name to give it by")
        hint = hints.get(parameter.name)
        given = parameter.default
        if get_origin(hint) is Annotated:
            hint, *notes = get_args(hint)
            given = next((note for note in notes if isinstance(note, Depends)), given)
        if isinstance(given, Depends):
            arguments[parameter.name] = _plan(given.make, False, (*above, function))
        elif (source := _source(hint)) is not None:
            arguments[parameter.name] = source
        elif listener and "payload" not in arguments.values():
            arguments[parameter.name] = "payload"
            payload = hint
        elif given is parameter.empty:
            takes = "the payload, " if listener else ""
            raise ClientError(
                f"{name}: nothing is known for the parameter {parameter.name}: there are {takes}MessageExt, "
                "ConsumeContext, App and Call by annotation, and Depends(...)"
            )
    return Plan(function, arguments, payload)


def _source(hint: Any) -> str | None:
    """What a parameter of this annotation is given; None when the annotation says nothing."""
    from rmq.app.application import App

    sources = {MessageExt: "message", ConsumeContext: "context", Call: "call", App: "app"}
    return sources.get(hint) if isinstance(hint, type) else None
