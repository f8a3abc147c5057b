"""One run, from a recipe to calibrated results, in a folder from which it can be resumed."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import math
import os
import signal
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch
from torch import nn

from calibrant import _inputs
from calibrant.calibrators.comparison import MethodComparison, compare
from calibrant.errors import CalibrantError
from calibrant.losses import LOSSES, FocalLoss, GammaPolicy, Loss
from calibrant.training import checkpoints
from calibrant.training.datasets import DataSet, load
from calibrant.training.folders import RunFolder, bytes_needed, environment, flat
from calibrant.training.loaders import channels_last
from calibrant.training.models import build
from calibrant.training.module import Record, TrainingModule, network_options
from calibrant.training.observations import observe
from calibrant.training.recipes import Recipe

LOGGERS = ("csv", "tensorboard", "none")
METHODS = ("identity", "temperature", "focal-temperature", "auto")
"""Calibrators at the end of a run; also ``focal`` if the loss has one gamma."""
SMALL = 100_000
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Options of mallopt(3)."""


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        folder: Its folder.
        recipe: Its recipe.
        records: Measurements after each epoch.
        comparison: Calibrators fitted on the validation logits, measured on the test logits.
        notes: Remarks about the course of the run.
    """

    folder: Path
    recipe: Recipe
    records: list[Record]
    comparison: MethodComparison
    notes: tuple[str, ...] = ()


def train(
    recipe: Recipe,
    folder: str | os.PathLike[str],
    *,
    data: DataSet | None = None,
    data_folder: str | os.PathLike[str] | None = None,
    embeddings: str | os.PathLike[str] | None = None,
    network: nn.Module | None = None,
    resume: bool = False,
    devices: int = 1,
    nodes: int = 1,
    accelerator: str = "auto",
    logger: str = "csv",
    threads: int | None = None,
    on_step: Callable[[int, int, int], None] | None = None,
    on_epoch: Callable[[Record], None] | None = None,
) -> Run | None:
    """Train, measure after each epoch, and calibrate at the end.

    Errors that can be found before the first step are raised then: a folder that is in use or not
    writable, a full disk, a recipe other than that of the run to resume, missing data. A checkpoint
    is written after each epoch. A run killed at any moment resumes from the last one, to the same
    bits on the same CPU with the same versions and number of threads.

    Args:
        recipe: How to train.
        folder: Folder to write to; new or empty, unless ``resume``.
        data: A data set that is not in ``calibrant.training.datasets``.
        data_folder: Folder with the files of the data set.
        embeddings: File of word vectors, for text.
        network: A network that is not in ``calibrant.training.models``. Training starts from its
            weights.
        resume: Continue the run in ``folder``.
        devices: Processes per machine, as in Lightning.
        nodes: Number of machines.
        accelerator: ``"cpu"``, ``"gpu"``, ... as in Lightning.
        logger: ``"csv"`` or ``"tensorboard"`` in addition to ``metrics.jsonl``, or ``"none"``.
        threads: Torch's threads in each process. None keeps torch's number, except for networks
            with fewer than ``SMALL`` weights, which one thread trains faster than two.
        on_step: Called before each step with the epoch, the number of the step and the number of
            steps.
        on_epoch: Called after each epoch with its record.

    Returns:
        Run | None: the finished run; None in all processes but the first.

    Examples:
        >>> import tempfile
        >>> from calibrant.training import recipe, train
        >>> short = recipe("digits", loss="fl-3", epochs=2, limit=200)
        >>> run = train(short, tempfile.mkdtemp() + "/run", accelerator="cpu")
        >>> len(run.records), run.comparison["focal"].params
        (2, {'gamma': 3.0})
    """
    run_folder, first = RunFolder(folder), is_first_process()
    _inputs.choice(logger, "logger", LOGGERS)
    processes = math.prod(
        _inputs.whole_number(count, name, allowed=range(1, 2**16))
        for name, count in (("devices", devices), ("nodes", nodes))
    )
    loss = loss_of(recipe)
    if resume:
        run_folder.refuse_other(recipe)
    elif first:
        run_folder.refuse_unless_new()
    tensorboard = _tensorboard(run_folder) if logger == "tensorboard" else None
    own_data = data is None
    if data is None:
        data = _loaded(recipe, data_folder, embeddings)
    files = {"data": _text(data_folder), "embeddings": _text(embeddings)} if own_data else {}
    if resume:
        run_folder.refuse_other_data(data)
        if run_folder.is_finished():
            return _known(run_folder, recipe, loss) if first else None
    _check_enough_samples("batch_size", recipe.batch_size, processes)
    _check_enough_samples("the training split", len(data.train), processes)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_reproducible(accelerator))
        if resume and first:
            stack.enter_context(run_folder.held())
        torch.manual_seed(recipe.seed)
        if network is None:
            network = build(recipe.model, data.n_classes, **network_options(recipe, data))
        _set_threads(threads, network)
        _try_out(network, recipe, data)
        state = checkpoints.newest(run_folder.checkpoints) if resume else None
        module = TrainingModule(recipe, data, network, loss, on_step=on_step)
        if state is not None:
            module.resume(state)
        trainer = _trainer(module, run_folder, devices, nodes, accelerator)
        notes: list[str] = []
        if first:
            run_folder.prepare(bytes_needed(recipe, data, network))
            if not resume:
                stack.enter_context(run_folder.held())
                run_folder.begin(recipe, data, files)
            started = {"devices": devices, "nodes": nodes, "accelerator": accelerator}
            starting = environment(from_epoch=module.first_epoch, **started)
            if differing := run_folder.note_environment(starting):
                notes.append(
                    f"The run was resumed with another {', '.join(differing)} than it was started "
                    "with: its last bits may differ from those of an uninterrupted run."
                )
            if state is None and run_folder.records():
                notes.append("No checkpoint of the run could be read: it started again.")
            run_folder.rewrite_records(run_folder.records(before=module.first_epoch))
        if not run_folder.predictions.exists() or module.first_epoch < recipe.epochs:
            module.on_epoch = _Writer(run_folder, module, first, logger, tensorboard, on_epoch)
            _fit(trainer, module, accelerator)
            if module.final is None or not is_first_process():
                return None
            run_folder.write_predictions(data, module.final)
        return _finished(run_folder, recipe, loss, notes)


def keep_freed_memory() -> None:
    """Let this process keep the memory of freed tensors, for programs that only train.

    By default glibc returns large blocks to the system, and every step pays for getting them again:
    on one core ResNet-8 trains 1.1 to 1.3 times faster without. Elsewhere this does nothing.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        set_option = ctypes.CDLL(None).mallopt
        set_option(M_MMAP_THRESHOLD, 1 << 30)
        set_option(M_TRIM_THRESHOLD, (1 << 31) - 1)


def loss_of(recipe: Recipe) -> Loss:
    """The loss of a recipe, with its options."""
    make = LOSSES[recipe.loss]
    with _inputs.refusing(f"loss_options of {recipe.loss}", "Leave them out, or correct them"):
        loss = make(**recipe.loss_options)
        if loss.reduction == "none":
            raise CalibrantError(
                "a training loss must be one number; found reduction='none'. Pass 'mean' or 'sum'"
            )
    return loss


def is_first_process() -> bool:
    """Whether this process writes, as the only or the first one."""
    names = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "NODE_RANK", "GROUP_RANK")
    ranks = [os.environ[name] for name in names if name in os.environ]
    return all(rank.strip() in ("", "0") for rank in ranks)


def fixed_gamma(loss: Loss) -> float | None:
    """Gamma of a focal loss with one gamma above 0, whose focal map calibrates; else None."""
    # Its subclasses cross-entropy and proper focal loss need no map.
    if type(loss) is not FocalLoss or isinstance(loss.gamma, GammaPolicy):
        return None
    return loss.gamma


@dataclass
class _Writer:
    """Writes a record, then a checkpoint, after every epoch."""

    run_folder: RunFolder
    module: TrainingModule
    first: bool
    logger: str
    tensorboard: Any
    on_epoch: Callable[[Record], None] | None

    def __call__(self, record: Record) -> None:
        if not self.first:
            return
        self.run_folder.add_record(record)
        if self.logger == "csv":
            self.run_folder.write_table(self.run_folder.records())
        if self.tensorboard is not None:
            self.tensorboard.log_metrics(flat(record), step=record["epoch"])
        # Last: an epoch that is killed before this is repeated.
        checkpoints.save(self.run_folder.checkpoints, self.module.state())
        if self.on_epoch is not None:
            self.on_epoch(record)


def _try_out(network: nn.Module, recipe: Recipe, data: DataSet) -> None:
    """Predict two samples, to refuse a network that cannot before anything is written."""
    some = torch.arange(min(2, len(data.val)))
    mode = network.training
    network.eval()
    with _inputs.refusing(
        f"the network {recipe.model} does not fit {data.name}", "Choose another, or other options"
    ):
        inputs, targets = data.val.evaluation().batch(some)
        device = next((p.device for p in network.parameters()), torch.device("cpu"))
        with torch.no_grad():
            logits = network(channels_last(inputs).to(device))
        expected = (len(targets), data.n_classes)
        if tuple(logits.shape) != expected:
            raise CalibrantError(
                f"the network must give logits of shape {expected} for {expected[0]} targets and "
                f"{expected[1]} classes; found {tuple(logits.shape)}. Build it for this data set"
            )
    network.train(mode)


def _trainer(
    module: TrainingModule, run_folder: RunFolder, devices: int, nodes: int, accelerator: str
) -> lightning.Trainer:
    """Lightning's trainer for the remaining epochs."""
    for chatty in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(chatty).setLevel(logging.ERROR)
    with (
        _quiet(),
        _inputs.refusing(
            f"accelerator={accelerator!r} with {devices} devices cannot be used",
            "Choose others; accelerator='cpu' always works",
        ),
    ):
        return lightning.Trainer(
            accelerator=accelerator,
            devices=devices,
            num_nodes=nodes,
            strategy="auto" if devices * nodes == 1 else "ddp",
            max_epochs=module.recipe.epochs - module.first_epoch,
            gradient_clip_val=module.recipe.clip_norm,
            default_root_dir=run_folder.path,
            reload_dataloaders_every_n_epochs=1,  # each epoch has its own order
            use_distributed_sampler=False,
            # Off: what costs time in each step, and what is done differently here.
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
            limit_val_batches=0,
            num_sanity_val_steps=0,
        )


def _fit(trainer: lightning.Trainer, module: TrainingModule, accelerator: str) -> None:
    """Run the remaining epochs, and predict."""
    if module.first_epoch == module.recipe.epochs:
        if is_first_process():
            device = "cuda" if accelerator != "cpu" and torch.cuda.is_available() else "cpu"
            module.network.to(device)
            module.finish(device)
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        with _quiet():
            trainer.fit(module)
    except SystemExit as ending:
        # On Ctrl-C Lightning ends the program and disables the signal.
        if isinstance(ending.__context__, KeyboardInterrupt):
            signal.signal(signal.SIGINT, handler)
            raise KeyboardInterrupt from ending
        raise


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence Lightning's advice against deliberate choices, and its own deprecations."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"lightning\.")
        warnings.filterwarnings("ignore", message=".*LeafSpec")
        yield


def _known(run_folder: RunFolder, recipe: Recipe, loss: Loss) -> Run:
    """A run that was finished before."""
    result = run_folder.read_result() or {}
    comparison = _compared(_stored_logits(run_folder), recipe, loss)
    return Run(
        run_folder.path, recipe, run_folder.records(), comparison, tuple(result.get("notes", ()))
    )


def _finished(run_folder: RunFolder, recipe: Recipe, loss: Loss, notes: list[str]) -> Run:
    """Calibrate, and write the result."""
    arrays = _stored_logits(run_folder)
    comparison = _compared(arrays, recipe, loss)
    records = run_folder.records()
    run_folder.write_result(
        {
            "hash": recipe.hash,
            "name": recipe.name,
            "recipe": recipe.to_dict(),
            "seconds": _total(records, "seconds"),
            "cpu_seconds": _total(records, "cpu"),
            "notes": notes,
            "val": observe(arrays["val_logits"], arrays["val_labels"]),
            "test": observe(arrays["test_logits"], arrays["test_labels"]),
            "comparison": comparison.to_dict(),
        }
    )
    return Run(run_folder.path, recipe, records, comparison, tuple(notes))


def _stored_logits(run_folder: RunFolder) -> dict[str, Any]:
    names = ("val_logits", "val_labels", "test_logits", "test_labels")
    with (
        _inputs.refusing(
            f"{run_folder.predictions} cannot be read", "Remove it and resume the run"
        ),
        np.load(run_folder.predictions, allow_pickle=False) as stored,
    ):
        return {name: stored[name] for name in names}


def _compared(arrays: dict[str, Any], recipe: Recipe, loss: Loss) -> MethodComparison:
    """Compare calibrators: fitted on the validation split, measured on the test split."""
    gamma = fixed_gamma(loss)
    methods = METHODS if gamma is None else (*METHODS, "focal")
    return compare(**arrays, methods=methods, gamma=gamma, random_state=recipe.seed)


def _total(records: list[Record], clock: str) -> float | None:
    """Seconds of all epochs; None if an older version has not recorded them."""
    if not all(clock in record for record in records):
        return None
    return round(sum(sum(record[clock].values()) for record in records), 2)


def _loaded(recipe: Recipe, folder: Any, embeddings: Any) -> DataSet:
    options = dict(recipe.data_options)
    if embeddings is not None:
        options["embeddings"] = embeddings
    return load(recipe.data, folder, random_state=recipe.seed, limit=recipe.limit, **options)


def _text(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else str(Path(path).resolve())


def _tensorboard(run_folder: RunFolder) -> Any:
    _inputs.installed("tensorboard", extra="tensorboard", purpose="--logger tensorboard")
    from lightning.pytorch.loggers import TensorBoardLogger

    return TensorBoardLogger(run_folder.path, name="", version="tensorboard")


def _set_threads(threads: int | None, network: nn.Module) -> None:
    if threads is None and sum(p.numel() for p in network.parameters()) < SMALL:
        threads = 1
    if threads is not None:
        most = range(1, 1025)
        torch.set_num_threads(_inputs.whole_number(threads, "threads", allowed=most))


@contextlib.contextmanager
def _reproducible(accelerator: str) -> Iterator[None]:
    """Use deterministic algorithms, and restore the caller's random state and settings."""
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    threads = torch.get_num_threads()
    settings: Any = torch.utils.deterministic
    filled = settings.fill_uninitialized_memory
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # Some layers have no deterministic form on a GPU: warn there instead of failing.
    on_cpu = accelerator == "cpu" or not torch.cuda.is_available()
    torch.use_deterministic_algorithms(True, warn_only=not on_cpu)
    settings.fill_uninitialized_memory = False
    try:
        with torch.random.fork_rng():
            yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn_only)
        settings.fill_uninitialized_memory = filled
        torch.set_num_threads(threads)


def _check_enough_samples(name: str, found: int, processes: int) -> None:
    """Refuse fewer samples than processes."""
    if found < processes:
        raise CalibrantError(
            f"{name} must be at least the number of processes, {processes}; found {found}. "
            "Use fewer devices, or more samples"
        )
