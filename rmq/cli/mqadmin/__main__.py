"""``python -m rmq.cli.mqadmin``."""

from __future__ import annotations

from rmq.cli.mqadmin import main

if __name__ == "__main__":
    main()
