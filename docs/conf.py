"""Sphinx makes the site of these pages and of the docstrings of what users import: ``make site``."""

from __future__ import annotations

import importlib
from typing import Any

import rmq

project = "RocketMQ in Python"
version = release = rmq.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["conf.py"]
html_theme = "furo"
html_title = project
html_show_copyright = False
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "inherited-members": "Exception, Enum, dict, tuple"}

#: The reference, in order: a title, and what of the public names is under it.
_PARTS = {
    "Clients": ("rmq", lambda made: made.__module__.startswith("rmq.client.blocking")),
    "Messages and results": ("rmq", lambda made: made.__module__ in _MESSAGES),
    "Errors": ("rmq", lambda made: isinstance(made, type) and issubclass(made, Exception)),
    "Choices": ("rmq", lambda made: True),
    "Applications": ("rmq.app", lambda made: True),
    "Tests": ("rmq.testing", lambda made: True),
    "Log records": ("rmq.integrations.logging", lambda made: True),
    "OpenTelemetry": ("rmq.integrations.opentelemetry", lambda made: True),
    "Prometheus": ("rmq.integrations.prometheus", lambda made: True),
    "OpenMessaging": ("rmq.integrations.openmessaging", lambda made: True),
}
_MESSAGES = ("rmq.client.message", "rmq.protocol.queue", "rmq.client.results")


def reference() -> str:
    """The page of every public name, in MyST: each once, under the first part that wants it."""
    lines: list[str] = []
    seen: set[int] = set()
    for title, (module, wants) in _PARTS.items():
        lines += [f"## {title}", "", "```{eval-rst}"]
        of = importlib.import_module(module)
        for name in of.__all__:
            made: Any = getattr(of, name)
            if id(made) not in seen and wants(made):
                seen.add(id(made))
                kind = "class" if isinstance(made, type) else "function" if callable(made) else "data"
                lines += [f".. auto{kind}:: {module}.{name}", ""]
        lines += ["```", ""]
    return "\n".join(lines)


def _fill(app: Any, page: str, source: list[str]) -> None:
    if page == "api":
        source[0] += reference()


def setup(app: Any) -> None:
    app.connect("source-read", _fill)
