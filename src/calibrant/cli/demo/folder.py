"""The folder of the demo. An earlier demo in it is overwritten; nothing else is touched."""

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
    """The files that the demo writes.

    ``index.html``, and for each loss ``LOSS.npz``, ``LOSS.html`` and ``LOSS/``, the folder of its
    training run; ``two-classes.html`` and its CSV files.
    """

    def __init__(self, path: Path, losses: Iterable[str]) -> None:
        self.path = path
        self.page = path / "index.html"
        self.losses = tuple(losses)

    def predictions(self, loss: str) -> Path:
        """Logits, labels and ids of the validation and the test part."""
        return self.path / f"{loss}.npz"

    def report(self, loss: str) -> Path:
        """The report of one network."""
        return self.path / f"{loss}.html"

    def run(self, loss: str) -> Path:
        """The folder of its training run."""
        return self.path / loss

    @property
    def two_classes(self) -> tuple[Path, Path, Path]:
        """The files to fit and to test on, and the report, of the example of two classes."""
        names = ("two-classes-val.csv", "two-classes-test.csv", "two-classes.html")
        val, test, page = (self.path / name for name in names)
        return val, test, page

    def prepare(self) -> None:
        """Make the folder; refuse one that holds other files."""
        try:
            make_folder(self.path)
        except (FileExistsError, NotADirectoryError) as taken:
            raise CalibrantError(
                f"--out must be a folder; {self.path} is a file or is inside a file. Name another"
            ) from taken
        for path in self._others():
            raise CalibrantError(
                f"--out must be new, empty or from an earlier demo; found {path}, which is not "
                "from a demo. Move it, or name another folder"
            )

    def make_room(self, loss: str) -> None:
        """Remove the run of an earlier demo, file by file; refuse one that is still running."""
        run = RunFolder(self.run(loss))
        if not run.path.is_dir():
            return
        with run.held():
            for file in _results_of(run):
                file.unlink(missing_ok=True)
            if run.checkpoints.is_dir():
                run.checkpoints.rmdir()
            # Last, because it identifies the rest as a demo's if this is interrupted.
            run.config.unlink(missing_ok=True)

    def _others(self) -> Iterator[Path]:
        """Files in the way that no demo has written."""
        runs = [RunFolder(self.run(loss)) for loss in self.losses]
        if not any(map(_is_of_a_demo, runs)) and not self._is_our_page():
            files = (make(loss) for loss in self.losses for make in (self.predictions, self.report))
            yield from filter(Path.exists, (self.page, *self.two_classes, *files))
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
    """Whether a demo started the run."""
    try:
        return run.recipe().source == SOURCE
    except (OSError, ValueError):
        return False


def _results_of(run: RunFolder) -> list[Path]:
    """The files that a run writes besides its configuration."""
    results = [run.environment, run.metrics, run.table, run.predictions, run.result]
    return [*checkpoints.found(run.checkpoints), *results]
