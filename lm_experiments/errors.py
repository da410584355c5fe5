"""The one error of bad input."""


class InputError(ValueError):
    """What was asked for cannot be done.

    The message is one sentence for the user: the offending value, what is allowed, what to type.
    """
