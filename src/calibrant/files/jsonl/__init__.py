"""Logs of language models: one JSON object per line, as servers and evaluation harnesses write."""

from calibrant.files.jsonl.answers import Answers
from calibrant.files.jsonl.lines import json_lines, sources_of
from calibrant.files.jsonl.source import JsonlSource

__all__ = ["Answers", "JsonlSource", "json_lines", "sources_of"]
