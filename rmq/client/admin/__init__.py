"""The admin client (Java: DefaultMQAdminExt): what operators ask of name servers and brokers, a module a noun.

The commands of ``mqadmin`` are made of it, and of nothing else.
"""

from __future__ import annotations

from rmq.client.admin.answers import Answers
from rmq.client.admin.client import AdminClient

__all__ = ["AdminClient", "Answers"]
