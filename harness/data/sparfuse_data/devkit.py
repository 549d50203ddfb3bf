"""Reads the classes of ImageNet's validation images from its development kit.

The kit numbers classes by itself; a class is the folder of train that its WNID names.
"""

import io
import pathlib
import tarfile

from .errors import DataError

TRUTH, META = "ILSVRC2012_validation_ground_truth.txt", "meta.mat"


def is_kit(place):
    place = pathlib.Path(place)
    return place.is_dir() or place.name.endswith((".tar.gz", ".tgz", ".tar"))


def classes(place):
    """{image: WNID} of the validation images."""
    files = _files(pathlib.Path(place))
    try:
        import scipy.io
    except ImportError as error:
        raise DataError(f"{place}: {META} is read by scipy; .venv/bin/pip install scipy brings it") from error
    try:
        synsets = scipy.io.loadmat(io.BytesIO(files[META]), squeeze_me=True)["synsets"]
        wnids = {int(each["ILSVRC2012_ID"]): str(each["WNID"]) for each in synsets
                 if int(each["num_children"]) == 0}
        numbers = [int(line) for line in files[TRUTH].decode().split()]
    except Exception as error:
        raise DataError(f"{place}: {META} or {TRUTH} cannot be read ({error}); expected the files of "
                        "ILSVRC2012_devkit_t12") from error
    found = {}
    for i, number in enumerate(numbers, 1):
        if number not in wnids:
            raise DataError(f"{place}: {TRUTH}:{i}: class {number}; expected one that {META} has")
        found[f"ILSVRC2012_val_{i:08d}.JPEG"] = wnids[number]
    return found


def _files(place):
    found = {}
    if place.is_dir():
        for name in (TRUTH, META):
            path = next(iter(sorted(place.rglob(name))), None)
            if path:
                found[name] = path.read_bytes()
    else:
        try:
            with tarfile.open(place) as tar:
                for member in tar:
                    name = pathlib.PurePosixPath(member.name).name
                    if name in (TRUTH, META) and member.isfile():
                        found[name] = tar.extractfile(member).read()
        except (tarfile.TarError, EOFError, OSError) as error:
            raise DataError(f"{place}: is no whole archive ({error}); expected the development kit") from error
    for name in (TRUTH, META):
        if name not in found:
            raise DataError(f"{place}: has no {name}; expected the development kit ILSVRC2012_devkit_t12")
    return found
