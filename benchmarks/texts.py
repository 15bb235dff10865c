"""Texts with a given number of tokens, the same in every run."""

from __future__ import annotations

import random
from itertools import islice, product
from string import ascii_lowercase

# The most frequent words of English first; what stands further back is drawn less often (Zipf's law).
_WORDS = """the of and to a in is that it for was on with as his they be at one have this from by hot but what some we can
out other were all there when up use your how said an each she which do their time if will way about many then them write would
like so these her long make thing see him two has look more day could go come did number sound no most people over know water
than call first who may down side been now find head stand own page should country found answer school grow study still learn
plant cover food sun four between state keep eye never last let thought city tree cross farm hard start might story saw far sea
draw left late run while press close night real life few north open seem together next white children begin got walk example
ease paper group always music those both mark often letter until mile river car feet care second book carry took science eat
room friend began idea fish mountain stop once base hear horse cut sure watch color face wood main"""
_ENDINGS = ("", "s", "ing", "er", "like")


def natural(tokens: int) -> str:
    """Words as often as in English, with commas and full stops; of 512 tokens 217 are different ones."""
    dice = random.Random(0)
    known = [word + ending for ending in _ENDINGS for word in _WORDS.split()]
    shares = [1 / (rank + 2) for rank in range(len(known))]
    words = dice.choices(known, shares, k=tokens)
    return " ".join("." if i % 13 == 12 else "," if i % 13 == 5 else word for i, word in enumerate(words))


def distinct(tokens: int) -> str:
    """No token twice."""
    return " ".join(map("".join, islice(product(ascii_lowercase, repeat=3), tokens)))
