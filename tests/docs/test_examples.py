"""The example prints what the mathematics page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.processes import run_python

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_example_recovers_the_posterior(tmp_path):
    picture = tmp_path / "demo.png"
    done = run_python("examples/recover_posterior.py", "--out", picture, cwd=ROOT, check=True)
    assert picture.read_bytes().startswith(b"\x89PNG")
    rows = re.findall(r"^gamma (\d)  (.+?) {2,}(\S+) +(\S+)$", done.stdout, flags=re.MULTILINE)
    assert len(rows) == 6
    for gamma in "15":
        before, scaled, mapped = (float(kl) for g, _, kl, _ in rows if g == gamma)
        assert mapped == 0.0 < 1e-3 < scaled < before
    table = done.stdout.split("\n\n")[1]
    assert table.strip() in (ROOT / "docs" / "mathematics.md").read_text()
