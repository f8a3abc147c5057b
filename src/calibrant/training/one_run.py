"""The process of one run of a grid: ``python -m calibrant.training.one_run REQUEST``."""

from __future__ import annotations

import json
import sys

from calibrant.errors import CalibrantError
from calibrant.training.recipes import Recipe
from calibrant.training.run import keep_freed_memory, train


def main(request: str) -> int:
    """Train by a JSON request; an error is the last line, with status 2 (130: stopped).

    The request is trusted: it comes from the parent process, which has checked ``own_model``, and
    not from a file.
    """
    wanted = json.loads(request)
    made = Recipe.from_dict(wanted.pop("recipe"), own_model=wanted.pop("own_model"))
    keep_freed_memory()
    try:
        train(made, wanted.pop("folder"), threads=1, **wanted)
    except (CalibrantError, OSError) as refusal:
        print(" ".join(str(refusal).split()), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
