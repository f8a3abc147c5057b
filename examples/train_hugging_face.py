"""Train with the Hugging Face Trainer and a loss that calibrates.

Only the lines marked "calibrant" are added. A tiny Transformer reads a digit as four stripes of 16
pixels. It is not pretrained, so nothing is downloaded, and training takes a few seconds.

    python examples/train_hugging_face.py --loss adafocal
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

from calibrant.integrations.hugging_face import TrainerLoss
from calibrant.losses import LOSSES


class Digits(Dataset[dict[str, Any]]):
    """Digits as sequences of four vectors, two rows of pixels in each."""

    def __init__(self, rows: slice) -> None:
        images, labels = load_digits(return_X_y=True)
        self.stripes = torch.tensor(images[rows] / 4.0 - 1.0).float().view(-1, 4, 16)
        self.labels = labels[rows]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"inputs_embeds": self.stripes[i], "labels": int(self.labels[i])}


def main() -> None:
    """Train and evaluate."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loss", choices=sorted(LOSSES), default="flsd-53")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("out/hugging-face"))
    arguments = parser.parse_args()
    set_seed(0)
    config = BertConfig(
        vocab_size=1,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
    )
    config.num_labels = 10
    loss = TrainerLoss(LOSSES[arguments.loss]())  # calibrant
    trainer = Trainer(
        BertForSequenceClassification(config),  # type: ignore[no-untyped-call]
        TrainingArguments(
            output_dir=str(arguments.out),
            num_train_epochs=arguments.epochs,
            per_device_train_batch_size=64,
            per_device_eval_batch_size=256,
            learning_rate=1e-2,
            eval_strategy="epoch",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=Digits(slice(0, 1300)),
        eval_dataset=Digits(slice(1300, None)),
        compute_loss_func=loss,  # calibrant
        compute_metrics=loss.metrics,  # calibrant: calibration errors, and AdaFocal
        callbacks=[loss],  # calibrant: schedules, and the state of AdaFocal in checkpoints
    )
    trainer.train()


if __name__ == "__main__":
    main()
