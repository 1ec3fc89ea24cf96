"""The slow obvious way: the network and its SGLD chains, one at a time, in one-hot matrices.

Nothing here is shared with qnet.py or sgld.py, and nothing is batched, gathered or reused. The
tests compare the fast code with it number by number; bench.py shows that the fast code is never
slower. Symbols as in qnet.py: x (n, 2p) inputs, y (n, p) targets, u, v (K, p), W (p, K).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def one_hot_task(p: int, a: NDArray[np.int64], b: NDArray[np.int64]) -> tuple[Array, Array]:
    """Inputs x (n, 2p) and targets y (n, p) of (a + b) mod p as dense one-hot matrices."""
    unit = np.eye(p)
    return np.concatenate([unit[a], unit[b]], axis=1), unit[(a + b) % p]


def split(w: Array, p: int, K: int) -> tuple[Array, Array, Array]:
    """u (K, p), v (K, p), W (p, K) of a weight vector (3pK,)."""
    return (
        w[: p * K].reshape(K, p),
        w[p * K : 2 * p * K].reshape(K, p),
        w[2 * p * K :].reshape(p, K),
    )


def loss_and_grad(x: Array, y: Array, w: Array, K: int) -> tuple[float, Array]:
    """L_n(w) and ∇L_n(w), (d,), of one chain."""
    n, p = y.shape
    u, v, W = split(w, p, K)
    z = x @ np.concatenate([u, v], axis=1).T
    f = (z * z) @ W.T
    r = (f - f.mean(axis=0)) - (y - y.mean(axis=0))
    loss = (r * r).sum() / (2 * n)
    dW = r.T @ (z * z) / n
    duv = (2 / n) * ((r @ W) * z).T @ x  # (K, 2p)
    return float(loss), np.concatenate([duv[:, :p].ravel(), duv[:, p:].ravel(), dW.ravel()])


def sgld_losses(
    x: Array,
    y: Array,
    w_star: Array,
    K: int,
    streams: list[np.random.Generator],
    *,
    n_beta: float,
    gamma: float,
    step: float,
    steps: int,
) -> Array:
    """L_n before every update of every chain, (C, T); chain c draws from streams[c]."""
    losses = np.empty((len(streams), steps))
    for c, stream in enumerate(streams):
        w = w_star.copy()
        for t in range(steps):
            losses[c, t], gradient = loss_and_grad(x, y, w, K)
            drift = n_beta * gradient + gamma * (w - w_star)
            w = w - step / 2 * drift + np.sqrt(step) * stream.standard_normal(len(w))
    return losses
