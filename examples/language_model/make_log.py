"""Write val.jsonl and test.jsonl: chat completions of an invented model on invented questions.

Each question has the options A to D. The model is over-confident, and its answer token competes
with other words ("The", "Answer", ...). The five most probable tokens are logged, as a server does
with top_logprobs=5, so that some options are missing.

    python examples/language_model/make_log.py FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

OPTIONS = ["A", "B", "C", "D"]
WORDS = ["The", "Answer", "**", "Option", "I", "It", "(", "None"]
SAMPLES = 400


def answers(
    rng: np.random.Generator, n: int, *, stretch: float = 1.7, top_logprobs: int = 5
) -> list[dict[str, Any]]:
    """Lines of a log, each with the label that a person would add.

    The logits are ``stretch`` times those of a calibrated model.
    """
    truth = 1.5 * rng.normal(size=(n, len(OPTIONS)))
    labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    options = stretch * truth
    words = options.max(axis=1, keepdims=True) + rng.normal(-4.0, 1.0, size=(n, len(WORDS)))
    spaced = options - 4.0  # the same options after a space
    scores = np.concatenate([options, spaced, words], axis=1)
    log_probs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    tokens = [*OPTIONS, *(f" {option}" for option in OPTIONS), *WORDS]
    lines = []
    for i, row in enumerate(log_probs):
        order = np.argsort(-row)[:top_logprobs]
        top = [{"token": tokens[j], "logprob": round(float(row[j]), 6)} for j in order]
        chosen = next(each for each in top if each["token"].strip() in OPTIONS)
        content = [{**chosen, "top_logprobs": top}]
        lines.append(
            {
                "id": f"question-{i}",
                "label": OPTIONS[labels[i]],
                "choices": [{"logprobs": {"content": content}}],
            }
        )
    return lines


def main(folder: Path) -> None:
    """Write both files."""
    rng = np.random.default_rng(0)
    for name in ("val", "test"):
        lines = answers(rng, SAMPLES)
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
