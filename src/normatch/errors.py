"""The one error that is the user's to mend: a line naming the thing, its value and the remedy."""

__all__ = ["UserError"]


class UserError(ValueError):
    """Wrong input. The command line prints its message on one line and exits with code 2."""
