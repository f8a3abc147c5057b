"""``python -m calibrant`` is the ``calibrant`` command."""

from calibrant.cli import main

main(prog_name="calibrant")
