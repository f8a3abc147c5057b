"""Train in a plain PyTorch loop with a loss that calibrates.

Only the lines marked "calibrant" are added to an ordinary loop. AdaFocal needs all of them, most
losses only the first. The data are scikit-learn's digits; training takes a few seconds.

    python examples/train_plain.py --loss adafocal
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from calibrant import evaluate
from calibrant.losses import LOSSES, Loss


def digits(seed: int) -> tuple[TensorDataset, Tensor, Tensor, Tensor, Tensor]:
    """The training set, and images and labels of the validation and test sets."""
    images, labels = load_digits(return_X_y=True)
    rest, test, rest_labels, test_labels = train_test_split(
        images / 16.0, labels, test_size=600, random_state=seed
    )
    train, val, train_labels, val_labels = train_test_split(
        rest, rest_labels, test_size=300, random_state=seed
    )
    held_out = (torch.tensor(part) for part in (val, val_labels, test, test_labels))
    val, val_labels, test, test_labels = held_out
    train_set = TensorDataset(torch.tensor(train).float(), torch.tensor(train_labels))
    return train_set, val.float(), val_labels, test.float(), test_labels


def train(loss: Loss, n_epochs: int, seed: int) -> tuple[Tensor, Tensor]:
    """The logits and labels of the test set after training."""
    torch.manual_seed(seed)
    train_set, val, val_labels, test, test_labels = digits(seed)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(n_epochs):
        loss.start_epoch(epoch, n_epochs)  # calibrant: for losses with a schedule
        for images, labels in DataLoader(train_set, batch_size=64, shuffle=True):
            optimizer.zero_grad()
            loss(model(images), labels).backward()
            optimizer.step()
        with torch.no_grad():
            loss.update(model(val), val_labels)  # calibrant: for AdaFocal
    with torch.no_grad():
        return model(test), test_labels


def main() -> None:
    """Train and evaluate the calibration of the model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loss", choices=sorted(LOSSES), default="flsd-53")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    loss = LOSSES[arguments.loss]()  # calibrant: replaces nn.CrossEntropyLoss()
    logits, labels = train(loss, arguments.epochs, arguments.seed)
    print(evaluate(logits=logits, labels=labels))


if __name__ == "__main__":
    main()
