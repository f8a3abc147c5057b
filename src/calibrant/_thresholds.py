"""Sizes that decide where predictions are held and processed, all in one place.

Read as ``_thresholds.NAME``, so that tests can change one of them for every module.
``docs/scale.md`` describes them for users.
"""

from __future__ import annotations

# In memory, or in parts.

ROWS_TO_FIT_IN_MEMORY = 20_000_000
"""Rows up to which ``calibrant fit`` reads a folder whole: 10 classes in float32 are 0.8 GB."""
ROWS_TO_EVALUATE_IN_MEMORY, NUMBERS_TO_EVALUATE_IN_MEMORY = 1_000_000, 20_000_000
"""Rows, and numbers in them, up to which ``calibrant evaluate`` keeps all samples: the bootstrap
resamples them, which takes longer than sums over batches and says no more when there are many."""

# In this process, or in worker processes.

ROWS_IN_ONE_PROCESS = 200_000
"""Rows up to which starting worker processes takes longer than the work."""

# One batch: what a process holds.

BATCH_ROWS, BATCH_NUMBERS = 1 << 16, 1 << 20
"""Rows, and numbers in them, that are held at a time of files that are read in parts: 8 MB of
float64."""
READ_ROWS = 1 << 14
"""Rows that are decoded at a time of a Parquet file that is read whole, or in batches that the
caller chose."""
MOST_PAGE_BYTES = 1 << 30
"""Bytes of one page of every Parquet column, which a reader holds besides the batch. Files of more
are refused: they would not leave a worker with 2 GB enough memory."""

# One bundle: the work of one task.

BUNDLE_ROWS, BUNDLE_NUMBERS = 1 << 20, 1 << 24
"""Rows of a task, and numbers in them: about a second of work, so that the cost of a task (some
milliseconds) does not matter and a lost worker loses little."""
MOST_BUNDLES = 8192
"""Tasks of a pass; of larger folders the bundles grow, because more tasks keep a Dask scheduler
busy."""

# What a fit gathers in the calling process.

MOST_GATHERED_NUMBERS = 1 << 24
"""Logits of the rows that a fit starts from; with many classes these are fewer rows than it asks
for."""
ROWS_TO_COMPARE = 1_000_000
"""Rows on which ``auto`` compares methods over files."""
MOST_GATHERED_VALUES = 1 << 16
"""Single values, for example those around a median."""
