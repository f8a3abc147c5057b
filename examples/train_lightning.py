"""Train with Lightning and a loss that calibrates.

Only the lines marked "calibrant" are added. The callback passes the epoch to the loss and the
validation set to AdaFocal, and logs calibration errors by epoch. The data are scikit-learn's
digits; training takes a few seconds.

    python examples/train_lightning.py --loss adafocal
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.loggers import CSVLogger
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from calibrant.integrations.lightning import CalibrationCallback
from calibrant.losses import LOSSES


class Digits(lightning.LightningModule):
    """A small network for digits."""

    def __init__(self, loss: str) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.loss = LOSSES[loss]()  # calibrant: replaces nn.CrossEntropyLoss()

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """The loss of a batch."""
        images, labels = batch
        loss: Tensor = self.loss(self.network(images), labels)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> dict[str, Tensor]:
        """Logits and labels for the callback."""
        images, labels = batch
        return {"logits": self.network(images), "labels": labels}  # calibrant: for the callback

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def loaders(seed: int) -> tuple[DataLoader[Any], DataLoader[Any]]:
    """Training and validation batches."""
    images, labels = load_digits(return_X_y=True)
    whole = TensorDataset(torch.tensor(images / 16.0).float(), torch.tensor(labels))
    random = torch.Generator().manual_seed(seed)
    train, val = random_split(whole, (len(whole) - 500, 500), generator=random)
    batches = DataLoader(train, batch_size=64, shuffle=True, generator=random)
    return batches, DataLoader(val, batch_size=250)


def main() -> None:
    """Train and print the path of the metrics by epoch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loss", choices=sorted(LOSSES), default="adafocal")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/lightning"), help="for the log")
    arguments = parser.parse_args()
    lightning.seed_everything(arguments.seed, verbose=False)
    logger = CSVLogger(arguments.out, name="", version="")
    trainer = lightning.Trainer(
        max_epochs=arguments.epochs,
        accelerator="cpu",
        logger=logger,
        callbacks=[CalibrationCallback()],  # calibrant: schedules, AdaFocal and metrics by epoch
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        log_every_n_steps=1,
    )
    trainer.fit(Digits(arguments.loss), *loaders(arguments.seed))
    print({name: round(float(value), 4) for name, value in trainer.callback_metrics.items()})
    print(f"by epoch: {arguments.out / 'metrics.csv'}")


if __name__ == "__main__":
    main()
