"""Times what published code of Ok-Topk does with selected indices on the host, in ns an entry (validation/safusion.md).

A rank has `own` selected indices and gets `all_` of the sum's, both ascending, in a part for each of `ranks`.
"""

import statistics
import time

import numpy as np


def host_steps(own, all_, elements, ranks=8):
    """The kept indices, after the conversions and copies between int64, int32 and float32 messages."""
    ends = np.arange(1, ranks) * (elements // ranks)
    sent = [part.astype(np.int32) for part in np.split(own, np.searchsorted(own, ends))]
    messages = [part.astype(np.float32) for part in np.split(all_, np.searchsorted(all_, ends))]
    got = np.concatenate([message.astype(np.int32) for message in messages])
    values = np.concatenate([message.copy() for message in messages])
    assert sum(map(len, sent)) == len(own) and len(values) == len(got)
    return np.intersect1d(own, got, assume_unique=True)


def main():
    for elements, k in ((60_192_808, 601_928), (335_000_000, 3_350_000)):
        draw = np.random.default_rng(0).integers(0, elements, (2, k))
        own, all_ = np.unique(draw[0]), np.unique(np.concatenate([draw[0][: k // 8], draw[1][k // 8 :]]))
        times = []
        for _ in range(15):
            began = time.perf_counter()
            host_steps(own, all_, elements)
            times.append(1e9 * (time.perf_counter() - began) / k)
        median, least, most = statistics.median(times), min(times), max(times)
        print(f"NumPy {np.__version__}, {k} entries: {median:.0f} [{least:.0f}, {most:.0f}] ns an entry")


main()
