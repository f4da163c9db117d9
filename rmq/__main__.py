"""``python -m rmq``: the command ``rmq``."""

from __future__ import annotations

from rmq.cli.rmq import main

if __name__ == "__main__":
    main()
