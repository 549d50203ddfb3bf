"""The error of what a user gives: its text names the place, the value and what was expected."""


class DataError(Exception):
    pass
