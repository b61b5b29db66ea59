"""SentencePiece-style BPE: characters are merged into the token with the best score.

Equal scores merge from the left, as llm_tokenizer_spm_session of llama-vocab.cpp does (llama.cpp
0c1e57098). The `tokenizers` library gives every merge a rank of its own and cannot say that, so
this one is ours. It knows neither special tokens nor files.
"""

import re
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

SPACE = "▁"  # how a space is written in a vocabulary
_WORDS = re.compile(f"{SPACE}*[^{SPACE}]+|{SPACE}+")
_CACHED_WORDS = 100_000


class ScoreBpe:
    """Turns text into ids of a vocabulary with scores.

    Args:
        vocabulary: the tokens that text may become, with their ids.
        scores: of every token, by id; the highest merges first.
        fallback: the ids of the 256 bytes, for characters without a token; None if the vocabulary
            has no bytes.
        unknown: the id of such a character then.
    """

    def __init__(
        self,
        vocabulary: Mapping[str, int],
        scores: Sequence[float],
        fallback: Sequence[int] | None,
        unknown: int | None,
    ) -> None:
        self._ids = vocabulary
        self._scores = scores
        self._fallback = fallback
        self._unknown = unknown
        # No token has a space after another character: no merge crosses the start of a word, and
        # words can be looked up.
        self._words_stand_alone = not any(
            SPACE in token[1:] and SPACE in token.lstrip(SPACE) for token in vocabulary
        )
        self._cache: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text without special tokens."""
        text = text.replace(" ", SPACE)
        if not self._words_stand_alone:
            return self._merge(text)
        ids: list[int] = []
        cache = self._cache
        for word in _WORDS.findall(text):
            found = cache.get(word)
            if found is None:
                if len(cache) >= _CACHED_WORDS:
                    cache.clear()
                found = cache[word] = tuple(self._merge(word))
            ids.extend(found)
        return ids

    def _merge(self, word: str) -> list[int]:
        """Return the ids of a word: the best pair first, the leftmost of equals."""
        symbols = list(word)  # a merged symbol is at its first character; the others become ""
        after = [*range(1, len(symbols)), -1]
        before = list(range(-1, len(symbols) - 1))
        queue: list[tuple[float, int, int, str]] = []  # (-score, left, right, token)

        def consider(left: int, right: int) -> None:
            token = symbols[left] + symbols[right]
            number = self._ids.get(token)
            if number is not None:
                queue.append((-self._scores[number], left, right, token))

        for left in range(len(symbols) - 1):
            consider(left, left + 1)
        heapify(queue)
        while queue:
            _, left, right, token = heappop(queue)
            # An entry is stale when either part has been merged since.
            if not symbols[left] or not symbols[right] or symbols[left] + symbols[right] != token:
                continue
            symbols[left], symbols[right] = token, ""
            after[left] = following = after[right]
            if following >= 0:
                before[following] = left
            for pair in ((before[left], left), (left, following)):
                if min(pair) >= 0:
                    found = self._ids.get(symbols[pair[0]] + symbols[pair[1]])
                    if found is not None:
                        union = symbols[pair[0]] + symbols[pair[1]]
                        heappush(queue, (-self._scores[found], *pair, union))
        return [number for symbol in symbols if symbol for number in self._ids_of(symbol)]

    def _ids_of(self, symbol: str) -> Sequence[int]:
        number = self._ids.get(symbol)
        if number is not None:
            return (number,)
        if self._fallback is not None:
            return [self._fallback[byte] for byte in symbol.encode()]
        return () if self._unknown is None else (self._unknown,)
