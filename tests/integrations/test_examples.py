"""The examples of training run, and say in at most five lines what is added."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import calibrant
from tests.processes import run_python

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = {
    "train_plain": ["--epochs", "3"],
    "train_lightning": ["--epochs", "3"],
    "train_hugging_face": ["--epochs", "2"],
}
PRINTED = {
    "train_plain": r"^ece +0\.\d+",
    "train_lightning": "val_ece",
    "train_hugging_face": "eval_ece",
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_at_most_five_lines_are_added(name):
    lines = (ROOT / "examples" / f"{name}.py").read_text().splitlines()
    marked = [line for line in lines if "# calibrant" in line]
    assert 3 <= len(marked) <= 5
    # What else comes from the package only measures or imports.
    body = "\n".join(line for line in lines if line not in marked)
    assert "start_epoch" not in body
    assert "update(" not in body


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_runs(name, tmp_path):
    out = [] if name == "train_plain" else ["--out", str(tmp_path)]
    done = run_python(
        f"examples/{name}.py",
        "--loss",
        "adafocal",
        *EXAMPLES[name],
        *out,
        cwd=ROOT,
        check=True,
        environment={"OMP_NUM_THREADS": "1"},
    )
    assert re.search(PRINTED[name], done.stdout, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("page", "name"), [("lightning", "train_lightning"), ("hugging-face", "train_hugging_face")]
)
def test_lines_that_a_page_adds_are_those_of_the_example(page, name):
    text = (ROOT / "docs" / f"{page}.md").read_text()
    added = re.findall(r"^\+ *(.+)$", text.split("```diff")[1].split("```")[0], flags=re.MULTILINE)
    example = (ROOT / "examples" / f"{name}.py").read_text()
    assert len(added) == example.count("# calibrant")
    for line in added:
        assert re.search(re.escape(line) + r"  # calibrant", example), line


def test_the_optimal_output_of_the_picture_minimises_the_expected_loss():
    from experiments.gradient_factor.run import optimal_output

    q = np.linspace(1e-6, 1 - 1e-6, 200_001)
    for gamma in (1.0, 3.0, 7.0):
        for p in (0.05, 0.3, 0.9):
            expected = -p * (1 - q) ** gamma * np.log(q) - (1 - p) * q**gamma * np.log1p(-q)
            found = optimal_output(np.array([p]), gamma)[0]
            assert found == pytest.approx(q[expected.argmin()], abs=1e-4)


@pytest.fixture
def one_thread():
    """Two threads on a busy machine wait for each other longer than such small steps take."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_the_linear_model_shows_what_the_pages_say():
    from experiments.linear_model.run import train

    plain, focal = train(0.0, 1500), train(1.0, 1500)
    norms = [np.linalg.norm(run.weights[-1]) for run in (plain, focal)]
    assert norms[0] > 1.5 * norms[1]
    assert (plain.wrong == focal.wrong).mean() > 0.99  # the same decisions
    assert plain.confidence[plain.wrong].mean() > focal.confidence[focal.wrong].mean() + 0.05
    before, after = (calibrant.ece(p, focal.labels) for p in (focal.probs, focal.mapped))
    assert after < before / 2
