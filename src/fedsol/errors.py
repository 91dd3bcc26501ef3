"""The exceptions fedsol raises on purpose; everything else that escapes is a defect."""


class FedsolError(Exception):
    """Something went wrong that a user can understand from the message alone."""


class InputError(FedsolError):
    """Bad input: the message names the field or file, the value, and what is allowed (exit code 2)."""


class UserCodeError(InputError):
    """An error in code that an experiment names: the message says where; `details` is its traceback (exit code 2)."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


class RunError(FedsolError):
    """A run could not continue: the message says why and what was saved (exit code 1)."""
