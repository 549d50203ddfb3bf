"""The error of a user's mistake: its text names the place, the value and the expected form."""


class DataError(Exception):
    pass


class NoRoom(DataError):
    """The data is good: once there is room, the same command goes on."""


def refuse_stand_in(place, start):
    """Refuses a file of which another stands in the place: `start` is its first bytes."""
    if start.startswith(b"version https://git-lfs"):
        raise DataError(f"{place}: is a pointer of Git LFS and not the file; git lfs pull fetches it")
    if start.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html")):
        raise DataError(f"{place}: is a page of HTML; was the download refused?")
