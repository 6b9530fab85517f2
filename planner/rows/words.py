"""Numbers as people read them, wherever they stand: in reasons, errors and on the console."""


def counted(count: int, what: str, one: str = "", several: str = "") -> str:
    """Write how many there are, and, where it has another form then, what they do.

    >>> [counted(count, "change") for count in (0, 1, 1200)]
    ['0 changes', '1 change', '1200 changes']
    >>> [counted(count, "partition", "goes offline", "go offline") for count in (1, 2)]
    ['1 partition goes offline', '2 partitions go offline']
    """
    does = one if count == 1 else several
    return f"{count} {what}{'s' * (count != 1)}{' ' * bool(does)}{does}"
