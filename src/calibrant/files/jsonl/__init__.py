"""Logs of language models: one JSON object per line, as servers and evaluation harnesses write."""

from calibrant.files.jsonl.source import JsonlSource

__all__ = ["JsonlSource"]
