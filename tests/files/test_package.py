"""A file appears whole or not at all."""

from __future__ import annotations

import pytest

from calibrant.files import written_whole


def test_an_error_leaves_what_was_there(tmp_path):
    target = tmp_path / "out.txt"
    target.write_text("before")

    def stop_half_way() -> None:
        with written_whole(target) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        stop_half_way()
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_stays_and_its_target_is_written(tmp_path):
    target, link = tmp_path / "real.txt", tmp_path / "link.txt"
    target.write_text("before")
    link.symlink_to(target)
    with written_whole(link) as temporary:
        temporary.write_text("after")
    assert link.is_symlink()
    assert target.read_text() == "after"


def test_a_device_is_not_replaced():
    with pytest.raises(FileExistsError, match="not a file"), written_whole("/dev/null"):
        pass


def test_a_folder_is_not_a_file(tmp_path):
    with pytest.raises(IsADirectoryError, match="it is a folder"), written_whole(tmp_path):
        pass
    with (
        pytest.raises(FileNotFoundError, match="there is no folder"),
        written_whole(tmp_path / "no" / "where.txt"),
    ):
        pass
