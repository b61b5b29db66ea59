"""Codebooks whose entries are points of several levels, and the search for scales under them.

The IQ2 and IQ3 formats store 4 or 8 weights as one point of a grid, a chosen subset of all the
combinations of a few positive levels, and their signs apart: x ~ s ± g. Of the terms of `search`
everything holds, with g for L; only the nearest point is not found by rounding. Instead:

1. u = |x| / s is rounded to the nearest combination of levels, on the grid or not;
2. a table says which points of the grid are near to that combination, the nearest first;
3. of these the one with the least sum w (g - u)² is taken.

Costs w differ within a group, so the best point need not be among the few nearest by plain
distance; trying `near` of them finds it almost always, at a twentieth of the work of trying all.

Where a format stores the signs of 8 weights in 7 bits, an even number of them is negative. Where it
is odd, the weight that costs least is stored with the wrong sign: as a small negative |x|.

It does not know layouts, superblocks or where costs come from.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from edgequant.blocks import Floats
from edgequant.formats.search import Search, blend, inverse

Indices = NDArray[np.intp]
NEAR = 16  # points listed for each combination of levels
_ROUND = 512  # combinations whose distances are held at once: 2 MiB of float32


class Grid:
    """The points of one format.

    Args:
        points: (points, dims), levels > 0 and about evenly spaced.

    Attributes:
        dims: weights a point stands for.
        rows: (points, dims), the points.
        values: (dims, points), the points turned.
    """

    def __init__(self, points: Floats) -> None:
        levels = np.unique(points)
        self.dims = points.shape[1]
        self.rows = points
        self.values = np.ascontiguousarray(points.T)
        self._base = len(levels)
        self._low = levels[0]
        self._each = np.float32((self._base - 1) / (levels[-1] - levels[0]))
        combinations = np.stack(
            np.meshgrid(*[levels] * self.dims, indexing="ij"), axis=-1, dtype=np.float32
        ).reshape(-1, self.dims)
        self._near = np.empty((NEAR, len(combinations)), np.intp)
        for start in range(0, len(combinations), _ROUND):
            some = combinations[start : start + _ROUND]
            distance = np.square(points).sum(1) - 2 * some @ self.values
            order = np.argsort(distance, axis=1, kind="stable")[:, :NEAR]
            self._near[:, start : start + _ROUND] = order.T

    def nearest(self, u: Floats, w: Floats, near: int) -> Indices:
        """Find points: u and w, (groups, dims, n), in levels -> (groups, n), which points."""
        keys = self._keys(u)
        wu = w * u
        wu *= np.float32(2)
        found: Indices = self._near[0].take(keys)
        least = self._cost(found, w, wu)
        for listed in self._near[1:near]:
            other = listed.take(keys)
            cost = self._cost(other, w, wu)
            better = cost < least
            np.minimum(least, cost, out=least)
            np.copyto(found, other, where=better)
        return found

    def _cost(self, points: Indices, w: Floats, wu: Floats) -> Floats:
        """Return sum w g² - 2 w u g over dims, (groups, n)."""
        cost = np.zeros(points.shape, np.float32)
        g = np.empty_like(cost)
        for dim, values in enumerate(self.values):
            values.take(points, out=g, mode="clip")
            part = w[:, dim] * g
            part -= wu[:, dim]
            part *= g
            cost += part
        return cost

    def _keys(self, u: Floats) -> Indices:
        """Number the combinations of levels nearest to u, (groups, dims, n) -> (groups, n)."""
        rounded = u - np.float32(self._low)
        rounded *= self._each
        np.rint(rounded, out=rounded)
        np.clip(rounded, np.float32(0), np.float32(self._base - 1), out=rounded)
        keys: Floats = rounded[:, 0].copy()
        for dim in range(1, self.dims):
            keys *= np.float32(self._base)
            keys += rounded[:, dim]
        return keys.astype(np.intp)


def grid_of(name: str, unit: int) -> Callable[[], Grid]:
    """Return what makes a grid of gguf-py's table, over `unit`, when it is first needed."""

    @cache
    def load() -> Grid:
        from gguf import quants

        table = getattr(quants, name)
        table.init_grid()
        points = np.asarray(table.grid, np.float32)
        return Grid(points.reshape(points.shape[-2:]) / np.float32(unit))

    return load


class GridFit:
    """Blocks to be fitted and room to work, as `SymmetricFit`, made anew for every piece.

    It makes the weights (k, n) that it is given into `x`, in place.

    Attributes:
        x: (k, n), the magnitudes; below 0 where the sign that is stored is the wrong one.
        w: (k, n), the costs, >= 0.
        negative: (k, n), the signs that are stored.
        points: (k / dims, n), the points under trial.
        levels: (k, n), their levels.
    """

    def __init__(self, x: Floats, w: Floats, grid: Grid, *, even: bool) -> None:
        self.negative = x < 0
        self.x = np.abs(x, out=x)
        self.w = w
        if even:
            self._make_even()
        self.wx = w * self.x
        self.grid = grid
        self.points = np.zeros((len(x) // grid.dims, x.shape[1]), np.intp)
        self.levels = np.empty_like(x)

    def _make_even(self) -> None:
        """Turn a sign in every 8 weights where an odd number is negative."""
        eights = (-1, 8, self.x.shape[1])
        odd = np.logical_xor.reduce(self.negative.reshape(eights), axis=1)
        cheapest = (self.w * self.x).reshape(eights).argmin(axis=1)
        turned = (np.arange(8)[:, None] == cheapest[:, None]) & odd[:, None]
        turned = turned.reshape(self.x.shape)
        self.negative ^= turned
        np.negative(self.x, out=self.x, where=turned)

    def assign(self, scale: Floats, near: int) -> None:
        """Put the points nearest under s, (n,) >= 0, into `points` and `levels`."""
        groups = (*self.points.shape[:1], self.grid.dims, self.x.shape[1])
        u = (self.x * inverse(scale)).reshape(groups)
        self.points = self.grid.nearest(u, self.w.reshape(groups), near)
        levels = self.levels.reshape(groups)
        for dim, values in enumerate(self.grid.values):
            values.take(self.points, out=levels[:, dim], mode="clip")

    def sums(self) -> Floats:
        """Return Q and R of `levels`, (2, n)."""
        sums = np.empty((2, self.x.shape[1]), np.float32)
        np.einsum("kn,kn,kn->n", self.w, self.levels, self.levels, out=sums[0])
        np.einsum("kn,kn->n", self.wx, self.levels, out=sums[1])
        return sums

    def search(self, search: Search, near: int) -> Floats:
        """Search s, (n,) >= 0; a start's span is the level that the largest magnitude takes."""
        largest = np.maximum.reduce(self.x, 0)
        scale, gain = np.zeros((2, len(largest)), np.float32)
        for start in search.starts:
            self.assign(largest / np.float32(start.span), near)
            self._solve(scale, gain)
        for _ in range(search.rounds):
            self.assign(scale, near)
            self._solve(scale, gain)
        return scale

    def _solve(self, scale: Floats, gain: Floats) -> None:
        """Put s and the gain of `levels`, (n,), into `scale` and `gain` where they gain more."""
        q, r = self.sums()
        fitted = r * inverse(q)
        explained = fitted * r
        better = (explained > gain) & (r > 0)
        blend(scale, fitted, better)
        blend(gain, explained, better)
