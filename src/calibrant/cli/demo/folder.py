"""The folder of the demo: an earlier demo in it is replaced, and nothing else is touched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from calibrant._writing import make_folder
from calibrant.cli.demo.page import TITLE
from calibrant.cli.demo.training import SOURCE
from calibrant.errors import CalibrantError
from calibrant.training import checkpoints
from calibrant.training.folders import RunFolder


class DemoFolder:
    """Where the demo writes, and what is in it.

    ``index.html``, and for each loss ``LOSS.npz``, ``LOSS.html`` and ``LOSS/``, the folder of its
    run as ``calibrant train`` leaves it.
    """

    def __init__(self, path: Path, losses: Iterable[str]) -> None:
        self.path = path
        self.page = path / "index.html"
        self.losses = tuple(losses)

    def predictions(self, loss: str) -> Path:
        """Logits, labels and ids of the validation and of the test part."""
        return self.path / f"{loss}.npz"

    def report(self, loss: str) -> Path:
        """The page of one network."""
        return self.path / f"{loss}.html"

    def run(self, loss: str) -> Path:
        """The folder of its training."""
        return self.path / loss

    def prepare(self) -> None:
        """Make the folder; refuse one where something else would be lost."""
        try:
            make_folder(self.path)
        except (FileExistsError, NotADirectoryError) as taken:
            raise CalibrantError(
                f"--out must be a folder; {self.path} is, or lies in, a file. Name another"
            ) from taken
        for path in self._others():
            raise CalibrantError(
                f"--out must be new, empty or of an earlier demo; found {path}, which is of none. "
                "Move it, or name another folder"
            )

    def make_room(self, loss: str) -> None:
        """Remove the run of an earlier demo, file by file; one that is at work is refused."""
        run = RunFolder(self.run(loss))
        if not run.path.is_dir():
            return
        with run.held():
            for file in _results_of(run):
                file.unlink(missing_ok=True)
            if run.checkpoints.is_dir():
                run.checkpoints.rmdir()
            # Last: by it the rest is known for a demo's, should this be stopped.
            run.config.unlink(missing_ok=True)

    def _others(self) -> Iterator[Path]:
        """What stands where the demo writes, and is of no demo."""
        runs = [RunFolder(self.run(loss)) for loss in self.losses]
        if not any(map(_is_of_a_demo, runs)) and not self._is_our_page():
            files = (make(loss) for loss in self.losses for make in (self.predictions, self.report))
            yield from filter(Path.exists, (self.page, *files))
        for run in runs:
            if run.path.exists() and not run.path.is_dir():
                yield run.path
            own = [run.config, run.checkpoints, *_results_of(run)] if _is_of_a_demo(run) else []
            run.sweep()
            found = sorted(run.path.rglob("*"))
            yield from (p for p in found if p not in own)

    def _is_our_page(self) -> bool:
        if not self.page.is_file():
            return False
        text = self.page.read_text(encoding="utf-8", errors="replace")
        return f"<title>{TITLE}</title>" in text


def _is_of_a_demo(run: RunFolder) -> bool:
    """Whether a run was begun by a demo."""
    try:
        return run.recipe().source == SOURCE
    except (OSError, ValueError):
        return False


def _results_of(run: RunFolder) -> list[Path]:
    """The files that a run leaves besides its configuration."""
    results = [run.environment, run.metrics, run.table, run.predictions, run.result]
    return [*checkpoints.found(run.checkpoints), *results]
