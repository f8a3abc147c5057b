"""Parquet: the one reader and writer for a file, a folder of files and a cluster.

``listing`` finds the files, ``footer`` reads what their footers say, ``folder`` reads their rows
in batches, and ``tables`` builds and writes Arrow tables.
"""

from calibrant._inputs.skipped import Skipped
from calibrant.files.parquet.folder import (
    ChangedFileError,
    ParquetFolder,
    Ranges,
    RowRange,
    open_folder,
)
from calibrant.files.parquet.footer import count_rows_in, is_empty, is_truncated
from calibrant.files.parquet.listing import files_at, parquet_files, partitions_of

__all__ = [
    "ChangedFileError",
    "ParquetFolder",
    "Ranges",
    "RowRange",
    "Skipped",
    "count_rows_in",
    "files_at",
    "is_empty",
    "is_truncated",
    "open_folder",
    "parquet_files",
    "partitions_of",
]
