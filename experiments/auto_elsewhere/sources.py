"""Scores to calibrate: stored forests and boosting, tabular data, text, and a shifted network.

A source is read or trained in the process that measures it; nothing is kept. Scores are those that
``CalibratedClassifier`` would take: the decision function where a model has one, else its
probabilities.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

SEED = 0
FEWEST_ROWS, MOST_ROWS = 800, 50_000
FEWEST_IN_A_CLASS = 40
"""Minimum, so that every split of a table has samples of every class."""

STORED, TABULAR, TEXT, SHIFT = "stored probabilities", "tabular", "text", "shift"
NEEDS_SKLEARN = (TABULAR, TEXT)


@dataclass(frozen=True)
class Scores:
    """Rows to fit on and rows to measure on."""

    kind: str
    """``"logits"`` or ``"probs"``: the argument they are passed as."""
    val: Floats
    val_labels: Labels
    test: Floats
    test_labels: Labels


@dataclass(frozen=True)
class Source:
    """The source of the scores: a data set and a model; for a shift, the data of the fit."""

    group: str
    name: str
    model: str

    def scores(self, data: Path) -> Scores:
        """Read, or train."""
        readers: dict[str, Callable[[Path, str, str], Scores]] = {
            STORED: stored,
            TABULAR: tabular,
            TEXT: text,
            SHIFT: shifted,
        }
        return readers[self.group](data, self.name, self.model)


def all_sources(data: Path) -> list[Source]:
    """Every source in the folder."""
    found = [
        Source(STORED, *path.stem.split("_", maxsplit=1))
        for path in sorted((data / "probs").glob("*.npz"))
    ]
    found += [
        Source(TABULAR, name, model) for name in tabular_names(data) for model in TABULAR_MODELS
    ]
    found += [
        Source(TEXT, name, model)
        for name, (file, _) in TEXTS.items()
        if (data / "text" / file).exists()
        for model in TEXT_MODELS
    ]
    if all((data / "logits" / f"{name}.npz").exists() for name in (CLEAN, JPEG)):
        found += [Source(SHIFT, JPEG, name) for name in FITTED_ON]
    if not found:
        raise SystemExit(f"no data in {data}; pass --data with the folder of probs and tabular")
    return found


# --- stored probabilities ---------------------------------------------------------------------


def stored(data: Path, name: str, model: str) -> Scores:
    """Forests, boosting and a small network, from a file."""
    with np.load(data / "probs" / f"{name}_{model}.npz") as file:
        return Scores(
            "probs",
            file["val_probs"].astype(np.float64),
            file["val_labels"].astype(np.int64),
            file["test_probs"].astype(np.float64),
            file["test_labels"].astype(np.int64),
        )


# --- tabular ----------------------------------------------------------------------------------


def tabular_names(data: Path) -> list[str]:
    """The tables with enough rows, not too many, and enough of every class."""
    index = data / "tabular" / "index.json"
    if not index.exists():
        return []
    return [
        about["name"]
        for about in json.loads(index.read_text())
        if FEWEST_ROWS <= about["n"] <= MOST_ROWS
        and min(about["class_counts"]) >= FEWEST_IN_A_CLASS
    ]


def _logistic() -> Any:
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
    from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]
    from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


def _forest() -> Any:
    from sklearn.ensemble import RandomForestClassifier  # type: ignore[import-untyped]

    return RandomForestClassifier(n_estimators=100, random_state=SEED)


def _boosting() -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=SEED)


def _gaussian_bayes() -> Any:
    from sklearn.naive_bayes import GaussianNB  # type: ignore[import-untyped]

    return GaussianNB()


TABULAR_MODELS: dict[str, Callable[[], Any]] = {
    "logistic regression": _logistic,
    "random forest": _forest,
    "gradient boosting": _boosting,
    "naive Bayes": _gaussian_bayes,
}


def tabular(data: Path, name: str, model: str) -> Scores:
    """Half of the rows to train on, a quarter to fit the calibrator on, a quarter to measure on."""
    with np.load(data / "tabular" / f"{name}.npz") as file:
        features, labels = file["X"].astype(np.float64), file["y"].astype(np.int64)
    n = len(labels)
    order = np.random.default_rng(SEED).permutation(n)
    train, val, test = np.split(order, [n // 2, n // 2 + n // 4])
    trained = TABULAR_MODELS[model]().fit(features[train], labels[train])
    return scored(trained, (features[val], labels[val]), (features[test], labels[test]))


def scored(model: Any, val: tuple[Any, Labels], test: tuple[Any, Labels]) -> Scores:
    """The scores of a trained model, one column for each class."""
    classes = np.asarray(model.classes_)
    parts = []
    for features, labels in (val, test):
        if hasattr(model, "decision_function"):
            kind, scores = "logits", np.asarray(model.decision_function(features))
            if scores.ndim == 1:
                scores = np.stack([np.zeros_like(scores), scores], axis=1)
        else:
            kind, scores = "probs", np.asarray(model.predict_proba(features))
        columns = np.searchsorted(classes, labels)
        if not np.array_equal(classes[columns.clip(max=len(classes) - 1)], labels):
            raise SystemExit("a class of the validation or test set is not in the training set")
        parts.append((scores.astype(np.float64), columns.astype(np.int64)))
    (val_scores, val_labels), (test_scores, test_labels) = parts
    return Scores(kind, val_scores, val_labels, test_scores, test_labels)


# --- text -------------------------------------------------------------------------------------

Texts = tuple[list[str], list[str]]
"""Documents and their labels."""


def _newsgroups(folder: Path, part: str) -> Texts:
    with gzip.open(folder / f"20news_bydate_{part}.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [row["text"] for row in rows], [row["group"] for row in rows]


def _trec(folder: Path, part: str) -> Texts:
    """The six coarse classes of questions."""
    with gzip.open(folder / f"trec_{part}.txt.gz", "rt", encoding="latin-1") as lines:
        rows = [line.strip().split(" ", maxsplit=1) for line in lines if line.strip()]
    return [question for _, question in rows], [label.split(":")[0] for label, _ in rows]


def _sst2(folder: Path, part: str) -> Texts:
    with gzip.open(folder / f"sst2_binary_{part}.txt.gz", "rt", encoding="utf-8") as lines:
        rows = [line.strip().split(" ", maxsplit=1) for line in lines if line.strip()]
    return [sentence for _, sentence in rows], [label for label, _ in rows]


TEXTS: dict[str, tuple[str, Callable[[Path], Iterator[Texts]]]] = {
    "20 Newsgroups": (
        "20news_bydate_train.jsonl.gz",
        lambda folder: held_out(_newsgroups, folder, 2000),
    ),
    "TREC": ("trec_train.txt.gz", lambda folder: held_out(_trec, folder, 1000)),
    "SST-2": (
        "sst2_binary_train.txt.gz",
        lambda folder: (_sst2(folder, part) for part in ("train", "dev", "test")),
    ),
}
"""The required file, and a function that returns the texts to train, fit and measure on."""


def held_out(read: Callable[[Path, str], Texts], folder: Path, n: int) -> Iterator[Texts]:
    """The training texts without a random ``n``, these ``n``, and the test texts."""
    documents, labels = read(folder, "train")
    order = np.random.default_rng(SEED).permutation(len(labels))
    for rows in (order[n:], order[:n]):
        yield [documents[i] for i in rows], [labels[i] for i in rows]
    yield read(folder, "test")


def _plain_logistic() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=1000)


def _multinomial_bayes() -> Any:
    from sklearn.naive_bayes import MultinomialNB

    return MultinomialNB()


TEXT_MODELS: dict[str, Callable[[], Any]] = {
    "logistic regression": _plain_logistic,
    "naive Bayes": _multinomial_bayes,
}


def text(data: Path, name: str, model: str) -> Scores:
    """TF-IDF of the words, and a linear model."""
    from sklearn.feature_extraction.text import TfidfVectorizer  # type: ignore[import-untyped]

    train, val, test = TEXTS[name][1](data / "text")
    classes = sorted(set(train[1]))
    index = {label: k for k, label in enumerate(classes)}
    words = TfidfVectorizer(min_df=2, sublinear_tf=True)
    features = words.fit_transform(train[0])
    trained = TEXT_MODELS[model]().fit(features, [index[label] for label in train[1]])
    val_part, test_part = (
        (words.transform(documents), np.array([index[label] for label in labels]))
        for documents, labels in (val, test)
    )
    return scored(trained, val_part, test_part)


# --- shift ------------------------------------------------------------------------------------

CLEAN, JPEG = "c10_resnet20", "c10jpeg_resnet20_akamaster"
FITTED_ON = {"fitted on JPEG images": JPEG, "fitted on clean images": CLEAN}
"""Which file the calibrator is fitted on; it is measured on the JPEG test images."""


def shifted(data: Path, name: str, model: str) -> Scores:
    """A network on JPEG images, and a calibrator fitted there or on clean ones.

    There are no outputs of this network on clean images: those are of a ResNet-20 that others
    trained. So the second is a shift of images and a change of weights at once.
    """
    with (
        np.load(data / "logits" / f"{FITTED_ON[model]}.npz") as fit,
        np.load(data / "logits" / f"{name}.npz") as measured,
    ):
        return Scores(
            "logits",
            fit["val_logits"].astype(np.float64),
            fit["val_labels"].astype(np.int64),
            measured["test_logits"].astype(np.float64),
            measured["test_labels"].astype(np.int64),
        )
