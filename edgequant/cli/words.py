"""How values become words on a terminal: sizes, counts, texts that come out of strange files."""


def visible(text: str) -> str:
    """Escape what a terminal would obey or cannot show, line ends included."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def size(nbytes: int) -> str:
    """Say a number of bytes in MiB or, from one on, in GiB."""
    if nbytes >= 2**30:
        return f"{nbytes / 2**30:,.2f} GiB"
    return f"{nbytes / 2**20:,.2f} MiB"


def count(number: int, thing: str) -> str:
    """Say how many: "1 chunk", "1,200 chunks"."""
    return f"{number:,} {thing}" + ("" if number == 1 else "s")
