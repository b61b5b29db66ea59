"""What a real Mac would not take."""


class Refused(Exception):  # noqa: N818 - it reads as what happened
    """A message or arguments that Metal or the Objective-C runtime would refuse or crash on."""
