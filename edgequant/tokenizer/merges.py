"""The merges of a byte-level vocabulary: pairs of tokens that become a third, best first.

There may be 500,000 of them, and a prompt needs twenty: a merge is looked at when it is used, and
all of them only when all are asked for. A merge is written "left right"; a token may begin with a
space itself. A merge that makes a control token can never be wanted, and is left out.
"""

from collections.abc import Container, Mapping, Sequence
from math import inf

from edgequant.errors import GGUFError
from edgequant.tokenizer.vocabulary import RECONVERT


class Merges:
    """Pairs to merge.

    Args:
        written: as in the file, best first; of equals, the first counts.
        usable: the tokens that text may become.
        known: those, and control tokens.
        where: the file's name, for messages.
    """

    def __init__(
        self, written: Sequence[str], usable: Mapping[str, int], known: Container[str], where: str
    ) -> None:
        self._written = written
        self._usable = usable
        self._known = known
        self._where = where
        self._ranks = dict(zip(reversed(written), range(len(written) - 1, -1, -1), strict=True))

    def rank(self, left: str, right: str) -> float:
        """Return the rank of a pair of tokens without spaces, the lowest is merged first.

        Infinity: they do not merge.

        Raises:
            GGUFError: together they are no token.
        """
        merge = f"{left} {right}"
        rank = self._ranks.get(merge, inf)
        if rank < inf and left + right not in self._usable:
            self._check(merge, left, right)
            return inf
        return rank

    def pairs(self) -> list[tuple[str, str]]:
        """Return all of them, each once.

        Raises:
            GGUFError: one is not two tokens that make a third.
        """
        usable = self._usable
        merges = list(dict.fromkeys(self._written))
        split = [merge.partition(" ") for merge in merges]
        pairs = [(left, right) for left, _, right in split]
        if all(a in usable and b in usable and a + b in usable for a, b in pairs):
            return pairs  # nearly always
        wanted = []
        for merge in merges:
            cut = max(merge.find(" ", 1), 0)
            left, right = merge[:cut], merge[cut + 1 :]
            if {left, right, left + right} <= usable.keys():
                wanted.append((left, right))
            else:
                self._check(merge, left, right)
        return wanted

    def _check(self, merge: str, *parts: str) -> None:
        """Refuse what is not two tokens that make a third, wanted or not."""
        if all(token in self._known for token in (*parts, "".join(parts))):
            return
        raise GGUFError(
            f"{self._where}: merge {self._written.index(merge):,} of {len(self._written):,} is "
            f"{merge!r}, which is not two tokens that make a third.",
            hint=RECONVERT,
        )
