"""``python -m tests.support.manual [page ...]``: write the pages again, as their commands print now."""

import sys
import tempfile
from pathlib import Path

from tests.support.manual.page import PAGES, run

for page in PAGES:
    if len(sys.argv) == 1 or page.stem in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            page.write_text(run(page, Path(folder)))
