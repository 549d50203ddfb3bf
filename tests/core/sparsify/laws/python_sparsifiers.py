"""Defines sparsifiers in Python: three that obey the laws of all sparsifiers, some that break one
each, one that cannot be made."""

import numpy


class TopK:
    """Selects the largest magnitudes, of equal ones the first, like the built-in sparsifier."""

    def select(self, g, k):
        return numpy.argsort(-numpy.abs(g), kind="stable")[:k]


class Threshold:
    """Selects elements at least `deviations` standard deviations off zero, at most 2k of them; if there is
    none, the largest."""

    exact_count = False

    def __init__(self, deviations=2.0):
        self.deviations = deviations

    def select(self, g, k):
        magnitudes = numpy.abs(g)
        above = numpy.flatnonzero(magnitudes > self.deviations * g.std(dtype=numpy.float64))
        return above[: 2 * k] if above.size else [magnitudes.argmax()]


class Random:
    """Selects at random, and obeys the laws: the constructor's seed is the trial's."""

    def __init__(self, seed):
        self.random = numpy.random.default_rng(seed)

    def select(self, g, k):
        return self.random.choice(g.size, k, replace=False)


class OneTooMany(TopK):
    def select(self, g, k):
        return super().select(g, k + 1)


class Twice(TopK):
    def select(self, g, k):
        return numpy.append(super().select(g, k)[1:], 0)


class AllTies:
    """Selects all ties: if elements are equal, more than a slot holds."""

    exact_count = False

    def select(self, g, k):
        magnitudes = numpy.abs(g)
        return numpy.flatnonzero(magnitudes >= numpy.partition(magnitudes, g.size - k)[g.size - k])


class NothingWhereNothingLiesBeyond(Threshold):
    def select(self, g, k):
        return numpy.flatnonzero(numpy.abs(g) > self.deviations * g.std(dtype=numpy.float64))[: 2 * k]


class RandomWithoutSeed(Random):
    def __init__(self):
        super().__init__(None)


class Needy(Random):
    """Cannot be constructed: no caller gives `how_many`."""

    def __init__(self, how_many, seed):
        super().__init__(seed)
        self.how_many = how_many
