"""The blocking clients' plain methods, written from the asyncio classes: ``make mirror``.

A coroutine is run on the loop thread, a plain method is called there while the client is started. What is more than
one call is written by hand and named in ``BY_HAND``.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.support.parsed import parsed

__all__ = ["PLACE", "text"]

CLIENT = Path(__file__).parents[2] / "rmq" / "client"
PLACE = CLIENT / "blocking" / "mirror.py"
WIDTH = 120

#: Of every class, and of some.
BY_HAND = {
    "": {"start", "shutdown"},
    "Producer": {"request_async", "send", "send_async", "send_oneway", "split"},
    "PushConsumer": {"on", "run"},
}
#: (module, class) -> how the mirror is called.
CLASSES = {
    ("lookup", "Lookups"): "Lookups",
    ("producer", "Producer"): "ProducerMirror",
    ("consumer.consumer", "Consumer"): "Consumer",
    ("consumer.push", "PushConsumer"): "PushConsumerMirror",
    ("consumer.pull", "PullConsumer"): "PullConsumerMirror",
    ("consumer.lite", "LitePullConsumer"): "LitePullConsumerMirror",
    ("admin.client", "AdminClient"): "AdminClientMirror",
}
#: Classes whose methods stand in modules of their own, a module each.
PARTS = {
    "AdminClient": [
        ("admin.asking", "Asking"), ("admin.topics", "Topics"), ("admin.groups", "Groups"),
        ("admin.offsets", "Offsets"), ("admin.messages", "Messages"), ("admin.connections", "Connections"),
        ("admin.brokers", "Brokers"), ("admin.nameservers", "NameServers"), ("admin.access", "AccessControl"),
        ("admin.replication", "Replication"),
    ],
}  # fmt: skip
HEAD = '''"""The plain methods of the blocking clients: each is one call of the asyncio client.

Written by ``make mirror`` from the asyncio classes, which are the place to change; a test compares the two.
"""

from __future__ import annotations

'''

Method = ast.FunctionDef | ast.AsyncFunctionDef


def text() -> str:
    """The whole module, as it is to be."""
    imports: dict[str, set[str]] = {
        "rmq.client.blocking.crossing": {"crosses"},
        "rmq.client.blocking.life": {"A", "Blocking", "C"},
    }
    names = sorted(mirror for mirror in CLASSES.values())
    parts = []
    for (module, name), mirror in CLASSES.items():
        tree, cls = _class(module, name)
        methods = list(_plain(cls))
        homes = _homes(tree, f"rmq.client.{module}")
        for part_module, part_name in PARTS.get(name, ()):
            tree, part = _class(part_module, part_name)
            methods += _plain(part)
            homes |= _homes(tree, f"rmq.client.{part_module}")
        for used in {node.id for method in methods for node in _names(method)}:
            if used in homes and not any(used in known for known in imports.values()):
                imports.setdefault(homes[used], set()).add(used)
        bases = [base.id for base in cls.bases if isinstance(base, ast.Name)]
        if name in PARTS:
            bases = ["Lookups"]
        above = [CLASSES[at] for at in CLASSES for base in bases if at[1] == base]
        whose = "C" if above else "A"
        if mirror != name:  # a client, and no part of several
            whose = f"Aio{name}"
            imports.setdefault(f"rmq.client.{module}", set()).add(f"{name} as {whose}")
        base = f"{above[0] if above else 'Blocking'}[{whose}]"
        doc = f'    """What :class:`rmq.client.{module}.{name}` has, blocking."""\n'
        parts.append(f"@crosses\nclass {mirror}({base}):\n{doc}\n" + "\n".join(_method(each) for each in methods))
    exported = "\n".join(_call("__all__ = [", [f'"{name}"' for name in names], "]"))
    return HEAD + _imports(imports) + "\n\n" + exported + "\n\n\n" + "\n\n".join(parts)


def _class(module: str, name: str) -> tuple[ast.Module, ast.ClassDef]:
    tree = parsed((CLIENT / (module.replace(".", "/") + ".py")).read_text())
    return tree, next(each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name)


def _plain(cls: ast.ClassDef) -> Iterator[Method]:
    hand = BY_HAND[""] | BY_HAND.get(cls.name, set())
    for each in cls.body:
        if isinstance(each, Method) and not each.name.startswith("_") and each.name not in hand:
            yield each


def _names(method: Method) -> Iterator[ast.Name]:
    """What a signature is made of."""
    given = method.args
    parts: list[ast.AST | None] = [method.returns, *given.defaults, *given.kw_defaults]
    parts += [each.annotation for each in (*given.args, *given.kwonlyargs)]
    for part in parts:
        yield from (node for node in ast.walk(part) if isinstance(node, ast.Name)) if part is not None else ()


def _homes(tree: ast.Module, module: str) -> dict[str, str]:
    """Where the names of a module come from."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            found |= {alias.name: str(node.module) for alias in node.names if alias.asname is None}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = module
        elif isinstance(node, ast.Assign):
            found |= {target.id: module for target in node.targets if isinstance(target, ast.Name)}
    return found


def _method(method: Method) -> str:
    given = method.args
    required = len(given.args) - len(given.defaults)
    params, passed = ["self"], []
    for at, each in enumerate(given.args[1:], 1):
        params.append(_param(each, given.defaults[at - required] if at >= required else None))
        passed.append(each.arg)
    if given.kwonlyargs:
        params.append("*")
    for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        params.append(_param(each, default))
        passed.append(f"{each.arg}={each.arg}")
    assert method.returns is not None, method.name
    # What nobody takes the plain method refuses by itself.
    others = [each.arg for each in (given.vararg, given.kwarg) if each is not None]
    assert others in ([], ["unknown"]), method.name
    lines = ["@property"] if _is_property(method) else []
    lines += _call(f"def {method.name}(", params, f") -> {ast.unparse(method.returns)}:")
    doc = ast.get_docstring(method)
    assert doc, method.name
    lines += [f'    """{doc}"""' if "\n" not in doc else f'    """{textwrap.indent(doc, "    ").lstrip()}\n    """']
    nothing = isinstance(method.returns, ast.Constant) and method.returns.value is None
    front = "    " if nothing else "    return "
    if isinstance(method, ast.AsyncFunctionDef):
        lines += _wrapped(f"{front}self._run(", f"self._alive().{method.name}(", passed, "))")
    elif _is_property(method):
        lines += [f"{front}self._on_loop(lambda client: client.{method.name})"]
    else:
        lines += _wrapped(f"{front}self._on_loop(", f"lambda client: client.{method.name}(", passed, "))")
    return textwrap.indent("\n".join(lines), "    ") + "\n"


def _param(each: ast.arg, default: ast.expr | None) -> str:
    assert each.annotation is not None
    text = f"{each.arg}: {ast.unparse(each.annotation)}"
    if isinstance(default, ast.Constant) and isinstance(default.value, str):
        return f'{text} = "{default.value}"'
    return text if default is None else f"{text} = {ast.unparse(default)}"


def _is_property(method: Method) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "property" for each in method.decorator_list)


def _call(front: str, items: Sequence[str], back: str, room: int = WIDTH - 4) -> list[str]:
    """A bracket and what is in it, on one line, or on three, or a line for each: as ruff lays it out."""
    line = front + ", ".join(items) + back
    if len(line) <= room:
        return [line]
    pad = " " * (len(front) - len(front.lstrip()))
    inner = f"{pad}    {', '.join(items)}"
    if len(inner) <= room and not front.lstrip().startswith(("from", "__all__")):
        return [front, inner, pad + back]
    return [front, *(f"{pad}    {item}," for item in items), pad + back]


def _wrapped(outer: str, inner: str, items: Sequence[str], back: str) -> list[str]:
    """A call within a call."""
    line = outer + inner + ", ".join(items) + back
    if len(line) <= WIDTH - 4:
        return [line]
    pad = " " * (len(outer) - len(outer.lstrip()))
    return [outer, *_call(f"{pad}    {inner}", items, ")"), f"{pad})"]


def _imports(found: dict[str, set[str]]) -> str:
    def order(module: str) -> tuple[bool, str]:
        return module.startswith("rmq"), module

    lines: list[str] = []
    for module in sorted(found, key=order):
        plain = sorted(name for name in found[module] if " as " not in name)
        if lines and module.startswith("rmq") and not any(line.startswith("from rmq") for line in lines):
            lines.append("")
        if plain:
            lines += _call(f"from {module} import ", _sorted(plain), "", WIDTH) if _fits(module, plain) else [
                f"from {module} import (", *(f"    {name}," for name in _sorted(plain)), ")"
            ]  # fmt: skip
        lines += [f"from {module} import {name}" for name in sorted(found[module]) if " as " in name]
    return "\n".join(lines)


def _fits(module: str, names: Sequence[str]) -> bool:
    return len(f"from {module} import {', '.join(names)}") <= WIDTH


def _sorted(names: Iterable[str]) -> list[str]:
    """Constants first, then classes, then the rest, as ruff sorts them."""
    return sorted(names, key=lambda name: (not (name.isupper() and name[1:]), not name[0].isupper(), name))


if __name__ == "__main__":
    PLACE.write_text(text())
