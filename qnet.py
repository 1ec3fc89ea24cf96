"""The quadratic network of modular addition: one hidden layer that squares its input.

    z_j(i) = u_j · x_i[:p] + v_j · x_i[p:]        f_k(i) = Σ_j W_kj z_j(i)²
    L_n(w) = (1/2n) Σ_i |(Cf)_i − (Cy)_i|²        C subtracts each output's mean over the n pairs

Symbols and shapes
    n   number of pairs                 p   modulus, number of outputs      K   hidden neurons
    d   number of weights, 3pK          m   rows of the Jacobian, n·p (pair-major, then output)
    B   a leading batch axis (chains, or vectors to multiply)
    w   (d,) or (B, d): u (K, p), v (K, p), W (p, K) raveled in C order, in this order
    x   inputs (n, 2p); for modular addition the one-hot of a beside the one-hot of b
    z   (n, K) pre-activations          g   (n, K), g_ij = Σ_k W_kj r_ik
    f,r (n, p) outputs, centred residuals C(f − y)
    J   (m, d) Jacobian of the centred outputs; ∇L_n = Jᵀr/n; H = JᵀJ/n + S

The scale is fixed here once: `hessian_scale` = 1/n, so L_n = ½·hessian_scale·|r|² and the
Gauss-Newton matrix is hessian_scale·JᵀJ. L_n has no weight decay in it.

What clarity costs: the Jacobian and the Hessian are dense. Use `jvp`, `vjp` and `hvp`, or
`jacobian_operator`, where they would not fit. What speed costs: `loss_and_grad` keeps its work
arrays from call to call, since fresh memory costs more than the arithmetic; so threads must not
share a network.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

NEURON_IN_USE = 0.01  # a neuron counts in K_eff from 1 % of the largest norm product on


def modular_pairs(p: int, fraction: float, seed: int) -> tuple[IntArray, IntArray]:
    """A random subset of the p² pairs (a, b), in grid order.

    Returns a, b, each (n,) with n = round(fraction·p²). The subset depends on (p, seed) alone
    through SeedSequence, so the pairs at a smaller fraction are a subset of those at a larger one.
    Raises ValueError when p < 2, fraction is outside (0, 1] or fewer than two pairs remain.
    """
    if p < 2:
        raise ValueError(f"p must be at least 2, got {p}")
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must lie in (0, 1], got {fraction}")
    n = round(fraction * p * p)
    if n < 2:
        raise ValueError(f"fraction {fraction} of {p}² pairs leaves {n}: at least 2 are needed")
    rng = np.random.default_rng(np.random.SeedSequence([0x7061697273, p, seed]))  # "pairs"
    chosen = np.sort(rng.permutation(p * p)[:n])
    return chosen // p, chosen % p


class _OneHot(NamedTuple):
    """One-hot inputs by their ones alone."""

    a: IntArray  # (n,)
    b: IntArray  # (n,)
    transposed: sparse.csr_array  # (2p, n)


class QuadraticNetwork:
    """The quadratic network on a fixed set of inputs and targets.

    Given inputs (n, 2p) and targets (n, p), both finite, and K ≥ 1 hidden neurons. Every verb takes
    weights w of shape (d,); `loss`, `loss_and_grad` and `outputs` also take (B, d).
    Raises ValueError on a wrong shape, a value that is not finite, or fewer than two pairs.
    """

    a: IntArray | None = None
    b: IntArray | None = None
    _sparse: _OneHot | None = None

    def __init__(self, inputs: ArrayLike, targets: ArrayLike, K: int) -> None:
        self.inputs: Array = np.asarray(inputs, dtype=np.float64)
        self.targets: Array = np.asarray(targets, dtype=np.float64)
        self.K = int(K)
        self._check_shapes()
        self.n, self.p = self.targets.shape
        self.n_params = 3 * self.p * self.K
        self.hessian_scale = 1.0 / self.n
        self._mean_row = np.full((1, self.n), 1.0 / self.n)
        self._kept: tuple[Array, Array] | None = None  # the work arrays of loss_and_grad

    def _check_shapes(self) -> None:
        if self.K < 1:
            raise ValueError(f"K must be at least 1, got {self.K}")
        x, y = self.inputs, self.targets
        if x.ndim != 2 or y.ndim != 2 or x.shape != (len(y), 2 * y.shape[1]):
            raise ValueError(
                f"inputs must be (n, 2p) for targets (n, p): got inputs {x.shape} and "
                f"targets {y.shape}"
            )
        if len(y) < 2:
            raise ValueError(f"the centred loss needs at least two pairs, got {len(y)}")
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise ValueError("inputs and targets must be finite: found NaN or infinity")

    @classmethod
    def modular(cls, p: int, K: int, a: ArrayLike, b: ArrayLike) -> QuadraticNetwork:
        """The task (a + b) mod p on the given distinct pairs; a, b integers (n,) in 0..p−1.

        Any p ≥ 2 is allowed. p need not be prime: the formulas of this module hold for every p;
        only statements about exact Fourier solutions need a prime. Raises ValueError.
        """
        left, right = _checked_pairs(p, np.asarray(a), np.asarray(b))
        unit = np.eye(p)
        net = cls(np.concatenate([unit[left], unit[right]], axis=1), unit[(left + right) % p], K)
        net._use_pairs(left, right)
        return net

    def _use_pairs(self, a: IntArray, b: IntArray) -> None:
        """Note that x is the one-hot of these pairs: sums need only visit its ones."""
        self.a, self.b = a, b
        # One neuron alone would turn the products of a strided z into products of strided vectors,
        # whose rounding depends on the stride, that is on the rows beside it.
        if self.K > 1:
            self._sparse = _OneHot(a, b, sparse.csr_array(self.inputs.T))

    def with_targets(self, targets: ArrayLike) -> QuadraticNetwork:
        """The same inputs with other targets (n, p): `net.with_targets(net.outputs(w))` is the
        planted teacher whose loss is zero at w."""
        net = QuadraticNetwork(self.inputs, targets, self.K)
        if self.a is not None and self.b is not None:
            net._use_pairs(self.a, self.b)
        return net

    # ---- weights ---------------------------------------------------------------------------

    def pack(self, u: ArrayLike, v: ArrayLike, W: ArrayLike) -> Array:
        """(d,) or (B, d) from u (…, K, p), v (…, K, p), W (…, p, K), in this order."""
        parts = [np.asarray(part, dtype=np.float64) for part in (u, v, W)]
        K, p, lead = self.K, self.p, parts[0].shape[:-2]
        shapes = [part.shape for part in parts]
        if shapes != [(*lead, K, p), (*lead, K, p), (*lead, p, K)]:
            raise ValueError(
                f"expected u, v (…, {K}, {p}) and W (…, {p}, {K}), got shapes {shapes}"
            )
        return np.concatenate([part.reshape(*lead, p * K) for part in parts], axis=-1)

    def unpack(self, w: ArrayLike) -> tuple[Array, Array, Array]:
        """u (…, K, p), v (…, K, p), W (…, p, K) from w (…, d); views where w allows it."""
        weights = self._checked(w)
        lead, K, p = weights.shape[:-1], self.K, self.p
        u, v, W = np.split(weights, 3, axis=-1)
        return u.reshape(*lead, K, p), v.reshape(*lead, K, p), W.reshape(*lead, p, K)

    def initial_weights(self, seed: int, scale: float) -> Array:
        """(d,) independent normal weights of standard deviation `scale`."""
        rng = np.random.default_rng(np.random.SeedSequence([0x696E6974, seed]))  # "init"
        return scale * rng.standard_normal(self.n_params)

    def _checked(self, w: ArrayLike) -> Array:
        weights = np.asarray(w, dtype=np.float64)
        if weights.ndim not in (1, 2) or weights.shape[-1] != self.n_params:
            raise ValueError(
                f"weights must be ({self.n_params},) or (B, {self.n_params}): got {weights.shape}"
            )
        return weights

    # ---- forward and gradient --------------------------------------------------------------
    # No sum runs over the batch axis, and every matrix product is one call per batch row: the bits
    # of a row do not depend on the rows beside it.

    def _input_weights(self, w: Array) -> Array:
        """u beside v, as the inputs meet them: a (B, 2, p, K) view of w (B, d)."""
        K, p = self.K, self.p
        return w[:, : 2 * K * p].reshape(len(w), 2, K, p).swapaxes(2, 3)

    def _output_weights(self, w: Array) -> Array:
        """W as a (B, p, K) view of w (B, d)."""
        return w[:, 2 * self.K * self.p :].reshape(len(w), self.p, self.K)

    def _pre_activations(self, w: Array, work: Array | None = None) -> Array:
        """z (B, n, K), a view of work[0]; both halves of work (2, B·n·K) are overwritten."""
        B, K, p = len(w), self.K, self.p
        z, other = np.empty((2, B * self.n * K)) if work is None else work
        if self._sparse is None:
            first = self._input_weights(w).reshape(B, 2 * p, K)
            return np.matmul(self.inputs, first, out=self._by_row(z, B))
        u, v = self._input_weights(w).transpose(1, 2, 0, 3).reshape(2, p, B * K)
        z, other = z.reshape(self.n, B * K), other.reshape(self.n, B * K)
        np.take(u, self._sparse.a, axis=0, out=z, mode="clip")  # "clip": straight into z, no copy
        z += np.take(v, self._sparse.b, axis=0, out=other, mode="clip")
        return self._by_row(z, B)

    def _by_row(self, half: Array, B: int) -> Array:
        """Half of the work array as (B, n, K): strided, as it is gathered, or contiguous."""
        if self._sparse is None:
            return half.reshape(B, self.n, self.K)
        return half.reshape(self.n, B, self.K).swapaxes(0, 1)

    def _pull_back(self, gz: Array, dW: Array) -> Array:
        """(B, d) from the cotangents of z, gz (B, n, K), and of W, dW (B, p, K)."""
        B, K, p = len(gz), self.K, self.p
        if self._sparse is None:
            duv = self.inputs.T @ gz
        else:
            columns = gz.swapaxes(0, 1).reshape(self.n, B * K)
            duv = (self._sparse.transposed @ columns).reshape(2 * p, B, K).swapaxes(0, 1)
        gradient = np.empty((B, self.n_params))
        self._input_weights(gradient)[...] = duv.reshape(B, 2, p, K)
        self._output_weights(gradient)[...] = dW
        return gradient

    def _centre(self, f: Array) -> Array:
        """C f over the pair axis of f (…, n, p), in place."""
        f -= self._mean_row @ f
        return f

    def outputs(self, w: ArrayLike) -> Array:
        """f, not centred: (n, p), or (B, n, p) for batched weights."""
        batch = np.atleast_2d(self._checked(w))
        z = self._pre_activations(batch)
        f = (z * z) @ self._output_weights(batch).swapaxes(1, 2)
        return f.reshape(*np.shape(w)[:-1], self.n, self.p)

    def residuals(self, w: ArrayLike) -> Array:
        """r = C(f − y) as (m,), in the Jacobian's row order; (B, m) for batched weights."""
        r = self._centre(self.outputs(w) - self.targets)
        return r.reshape(*np.shape(w)[:-1], self.n * self.p)

    def loss(self, w: ArrayLike) -> float | Array:
        """L_n(w): a float, or (B,)."""
        r = self.residuals(w)
        return 0.5 * self.hessian_scale * np.vecdot(r, r)

    def loss_and_grad(self, w: ArrayLike) -> tuple[float | Array, Array]:
        """L_n and its gradient, (d,) or (B, d) like w.

        ∂W_kj = (1/n) Σ_i r_ik z_ij²;  ∂u_j[a] = (2/n) Σ_i x_i[a] g_ij z_ij;  v likewise (E02).
        """
        batch = np.atleast_2d(self._checked(w))
        work, r = self._work_arrays(len(batch))
        W = self._output_weights(batch)
        z = self._pre_activations(batch, work)
        z2 = np.multiply(z, z, out=self._by_row(work[1], len(batch)))
        np.matmul(z2, W.swapaxes(1, 2), out=r)
        r -= self.targets
        self._centre(r)
        flat = r.reshape(len(batch), self.n * self.p)
        loss = 0.5 * self.hessian_scale * np.vecdot(flat, flat)
        dW = self.hessian_scale * (r.swapaxes(1, 2) @ z2)
        gz = np.matmul(r, 2.0 * self.hessian_scale * W, out=z2)  # z2 is spent
        gz *= z
        gradient = self._pull_back(gz, dW)
        return (loss[0], gradient[0]) if np.ndim(w) == 1 else (loss, gradient)

    def _work_arrays(self, B: int) -> tuple[Array, Array]:
        """(2, B·n·K) and (B, n, p) of any content, kept for the next call with as many rows."""
        if self._kept is None or len(self._kept[1]) != B:
            self._kept = np.empty((2, B * self.n * self.K)), np.empty((B, self.n, self.p))
        return self._kept

    # ---- Jacobian and Hessian --------------------------------------------------------------

    def _point(self, w: ArrayLike) -> tuple[Array, Array]:
        """z (n, K) and W (p, K) at one weight vector."""
        weights = self._checked(w)
        if weights.ndim != 1:
            raise ValueError(f"derivatives are taken at one point: w must be ({self.n_params},)")
        return self._pre_activations(weights[None])[0], self._output_weights(weights[None])[0]

    def jvp(self, w: ArrayLike, x: ArrayLike) -> Array:
        """J x: (m,) for x (d,), (B, m) for x (B, d). J is never built."""
        z, W = self._point(w)
        batch = np.atleast_2d(self._checked(x))
        df = (2.0 * z * self._pre_activations(batch)) @ W.T
        df += (z * z) @ self._output_weights(batch).swapaxes(1, 2)
        return self._centre(df).reshape(*np.shape(x)[:-1], self.n * self.p)

    def vjp(self, w: ArrayLike, y: ArrayLike) -> Array:
        """Jᵀ y: (d,) for y (m,), (B, d) for y (B, m). J is never built."""
        z, W = self._point(w)
        cotangents = np.array(y, dtype=np.float64)
        if cotangents.ndim not in (1, 2) or cotangents.shape[-1] != self.n * self.p:
            m = self.n * self.p
            raise ValueError(f"y must be ({m},) or (B, {m}): got {cotangents.shape}")
        r = self._centre(cotangents.reshape(-1, self.n, self.p))
        gradient = self._pull_back(2.0 * z * (r @ W), r.swapaxes(1, 2) @ (z * z))
        return gradient.reshape(*cotangents.shape[:-1], self.n_params)

    def hvp(self, w: ArrayLike, x: ArrayLike) -> Array:
        """H x with the full Hessian H = JᵀJ/n + S: (d,) for x (d,), (B, d) for x (B, d) (E09)."""
        z, W = self._point(w)
        batch = np.atleast_2d(self._checked(x))
        r = self.residuals(w).reshape(self.n, self.p)
        dz, dW = self._pre_activations(batch), self._output_weights(batch)
        curved = self._pull_back(2.0 * (z * (r @ dW) + (r @ W) * dz), r.T @ (2.0 * z * dz))
        gauss_newton = self.vjp(w, self.jvp(w, batch))
        return (self.hessian_scale * (gauss_newton + curved)).reshape(np.shape(x))

    def jacobian_operator(self, w: ArrayLike) -> LinearOperator:
        """J as a scipy LinearOperator (m, d) that is never built; feeds the block Gram route."""
        return LinearOperator(
            shape=(self.n * self.p, self.n_params),
            dtype=np.dtype(np.float64),
            matvec=lambda x: self.jvp(w, np.ravel(x)),
            rmatvec=lambda y: self.vjp(w, np.ravel(y)),
            matmat=lambda X: self.jvp(w, X.T).T,
            rmatmat=lambda Y: self.vjp(w, Y.T).T,
        )

    def jacobian(self, w: ArrayLike) -> Array:
        """J (m, d) in closed form: ∂f_k/∂W_lj = δ_kl z_j², ∂f_k/∂u_j[a] = 2 W_kj z_j x[a], centred
        over the pairs (E04). Rows pair-major, then output; columns in `pack` order."""
        z, W = self._point(w)
        n, p, K = self.n, self.p, self.K
        J = np.zeros((n, p, 3, K * p))
        slope = 2.0 * z[:, None, :] * W  # (n, p, K): ∂f_k/∂z_j
        halves = J[:, :, :2].reshape(n, p, 2, K, p)
        np.multiply(slope[:, :, None, :, None], self.inputs.reshape(n, 1, 2, 1, p), out=halves)
        for k in range(p):
            J[:, k, 2, k * K : (k + 1) * K] = z * z
        J -= J.mean(axis=0)
        return J.reshape(n * p, self.n_params)

    def hessian(self, w: ArrayLike) -> Array:
        """H = JᵀJ/n + S (d, d), exact at any loss (E09).

        S is block-diagonal over neurons, S[W, W] = 0 and tr S = 0 for one-hot pairs:
        S[u_a, u_a'] = (2/n) Σ_i g_ij x_i[a] x_i[a'], S[W_k, u_a] = (2/n) Σ_i r_ik z_ij x_i[a].
        """
        z, W = self._point(w)
        J = self.jacobian(w)
        H = self.hessian_scale * (J.T @ J)
        r = self.residuals(w).reshape(self.n, self.p)
        g, p, K, scale = r @ W, self.p, self.K, 2.0 * self.hessian_scale
        for j in range(K):
            first = np.concatenate([j * p + np.arange(p), (K + j) * p + np.arange(p)])
            second = 2 * K * p + j + K * np.arange(p)
            H[np.ix_(first, first)] += scale * (self.inputs.T @ (g[:, [j]] * self.inputs))
            mixed = scale * (self.inputs.T @ (z[:, [j]] * r))  # (2p, p)
            H[np.ix_(first, second)] += mixed
            H[np.ix_(second, first)] += mixed.T
        return H

    # ---- symmetry, rank, neurons in use ----------------------------------------------------

    def null_directions(self, w: ArrayLike) -> Array:
        """Exact null directions of J as rows: (2K, d), or (K, d) for general inputs (E05).

        Per neuron the scaling (u_j, v_j, −2W_j), and for one-hot pairs the shift (+1 on u_j, −1 on
        v_j)."""
        u, v, W = self.unpack(w)
        K, p, own = self.K, self.p, np.eye(self.K)
        U, V = own[:, :, None] * u, own[:, :, None] * v  # row j keeps neuron j alone
        scaling = self.pack(U, V, -2.0 * own[:, None, :] * W)
        if self.a is None:
            return scaling
        ones = np.broadcast_to(own[:, :, None], (K, K, p))
        return np.concatenate([scaling, self.pack(ones, -ones, np.zeros((K, p, K)))])

    def effective_neurons(self, w: ArrayLike) -> int:
        """K_eff: neurons whose |W_j|·(|u_j|² + |v_j|²) is at least 1 % of the largest of them."""
        u, v, W = self.unpack(w)
        size = np.linalg.norm(W, axis=0) * ((u * u).sum(axis=1) + (v * v).sum(axis=1))
        return int(np.count_nonzero(size >= NEURON_IN_USE * size.max())) if size.max() > 0 else 0

    def rank_bound(self) -> int:
        """The largest rank J can have on these inputs with K neurons (E06).

        One-hot pairs: min{ p(n−1);  min over edge sets R of p|R| + K(3p−1−c(E∖R));
        K(n−1+p−K) if K < min(p, n−1) }, R by greedy min-degree peeling. General inputs:
        K(3p−1) and p·p(2p+1), the span of all quadratic forms, replace the middle term.
        Every term is an upper bound for all weights; generic weights were always seen to attain it,
        save one defective Gaussian case (p = 3, K = 8: 62, not 63).
        """
        n, p, K = self.n, self.p, self.K
        bounds = [p * (n - 1)]
        if min(p, n - 1) > K:
            bounds.append(K * (n - 1 + p - K))
        if self.a is None or self.b is None:
            bounds += [K * (3 * p - 1), p * p * (2 * p + 1)]
        else:
            peeled = _peel_pairs(p, self.a, self.b)
            bounds += [p * removed + K * (3 * p - 1 - parts) for removed, parts in peeled]
        return min(bounds)

    def symmetry_free_dimension(self) -> int:
        """D: d minus the exact symmetry directions, 2 per neuron on one-hot pairs, 1 otherwise."""
        return self.n_params - self.K * (1 if self.a is None else 2)

    # ---- task ------------------------------------------------------------------------------

    def accuracy(self, w: ArrayLike) -> tuple[float, float | None]:
        """Share of right answers on the training pairs and on all others (None if there are none).

        Read after adding the offset mean(y) − mean(f) per output: the centred loss leaves it free.
        Raises ValueError for general inputs, where no answer is right or wrong.
        """
        if self.a is None or self.b is None:
            raise ValueError("accuracy needs the modular-addition task, not general inputs")
        p, (u, v, W) = self.p, self.unpack(w)
        z = (u.T[:, None, :] + v.T).reshape(p * p, self.K)  # every pair, in grid order
        f = (z * z) @ W.T
        trained = np.zeros(p * p, dtype=bool)
        trained[self.a * p + self.b] = True
        f += self.targets.mean(axis=0) - f[trained].mean(axis=0)
        a, b = np.divmod(np.arange(p * p), p)
        right = f.argmax(axis=1) == (a + b) % p
        held_out = float(right[~trained].mean()) if not trained.all() else None
        return float(right[trained].mean()), held_out

    def frozen(self, w: ArrayLike) -> FrozenFirstLayer:
        """The view in which only W is sampled: linear in its weights, λ = p·rank(CZ²)/2."""
        z, _ = self._point(w)
        return FrozenFirstLayer(z * z, self.targets)


class FrozenFirstLayer:
    """Output weights alone: f = F Wᵀ with features F (n, K) fixed; w is W (p, K) raveled, d = pK.

    Exactly quadratic: J = (C F) ⊗ I_p for every w, so λ = p·rank(C F)/2, and the law of the sampler
    holds without any approximation. Same verbs, centring and scale as QuadraticNetwork.
    """

    def __init__(self, features: ArrayLike, targets: ArrayLike) -> None:
        F: Array = np.asarray(features, dtype=np.float64)
        y: Array = np.asarray(targets, dtype=np.float64)
        if F.ndim != 2 or y.ndim != 2 or len(F) != len(y):
            raise ValueError(f"need features (n, K), targets (n, p): got {F.shape} and {y.shape}")
        (self.n, self.K), self.p = F.shape, y.shape[1]
        self.n_params = self.p * self.K
        self.hessian_scale = 1.0 / self.n
        self.features: Array = F - F.mean(axis=0)
        self._centred_targets: Array = y - y.mean(axis=0)

    def _outputs(self, w: ArrayLike) -> Array:
        """C f as (…, n, p)."""
        weights = np.asarray(w, dtype=np.float64)
        if weights.ndim not in (1, 2) or weights.shape[-1] != self.n_params:
            raise ValueError(
                f"weights must be ({self.n_params},) or (B, {self.n_params}): got {weights.shape}"
            )
        W = weights.reshape(*weights.shape[:-1], self.p, self.K)
        return self.features @ W.swapaxes(-1, -2)

    def output_weights(self, w_full: ArrayLike) -> Array:
        """The sampled part (d,) of a full weight vector of the network."""
        return np.asarray(w_full, dtype=np.float64)[..., -self.n_params :]

    def residuals(self, w: ArrayLike) -> Array:
        """r = C(f − y) as (m,)."""
        return (self._outputs(w) - self._centred_targets).ravel()

    def loss(self, w: ArrayLike) -> float | Array:
        """L_n(w): a float, or (B,)."""
        return self.loss_and_grad(w)[0]

    def loss_and_grad(self, w: ArrayLike) -> tuple[float | Array, Array]:
        """L_n and its gradient, (d,) or (B, d) like w."""
        r = self._outputs(w) - self._centred_targets
        flat = r.reshape(*r.shape[:-2], -1)
        grad = self.hessian_scale * (r.swapaxes(-1, -2) @ self.features)
        return 0.5 * self.hessian_scale * np.vecdot(flat, flat), grad.reshape(*r.shape[:-2], -1)

    def jvp(self, w: ArrayLike, x: ArrayLike) -> Array:
        """J x: (m,) for x (d,); J does not depend on w."""
        return self._outputs(x).ravel()

    def vjp(self, w: ArrayLike, y: ArrayLike) -> Array:
        """Jᵀ y: (d,) for y (m,)."""
        return (np.asarray(y).reshape(self.n, self.p).T @ self.features).ravel()

    def hvp(self, w: ArrayLike, x: ArrayLike) -> Array:
        """H x = JᵀJ x/n; exact, there is no residual term."""
        return self.hessian_scale * self.vjp(w, self.jvp(w, x))

    def jacobian(self, w: ArrayLike) -> Array:
        """J (m, d): row (i, k) holds the centred features of pair i in the columns of output k."""
        J = np.einsum("ij,kl->iklj", self.features, np.eye(self.p))
        return J.reshape(self.n * self.p, self.n_params)


def _checked_pairs(p: int, a: NDArray[Any], b: NDArray[Any]) -> tuple[IntArray, IntArray]:
    if p < 2:
        raise ValueError(f"p must be at least 2, got {p}")
    if a.ndim != 1 or a.shape != b.shape or a.dtype.kind not in "iu" or b.dtype.kind not in "iu":
        raise ValueError(
            f"a and b must be integer arrays of one length: got {a.dtype} {a.shape} and "
            f"{b.dtype} {b.shape}"
        )
    if len(a) and (min(a.min(), b.min()) < 0 or max(a.max(), b.max()) >= p):
        raise ValueError(
            f"a and b must lie in 0..{p - 1}: got {a.min()}..{a.max()}, {b.min()}..{b.max()}"
        )
    left, right = a.astype(np.int64), b.astype(np.int64)
    if len(np.unique(left * p + right)) < len(a):
        raise ValueError("the pairs must be distinct: at least one pair (a, b) occurs twice")
    return left, right


def _peel_pairs(p: int, a: IntArray, b: IntArray) -> list[tuple[int, int]]:
    """(|R|, c(E∖R)) along a greedy peeling: R grows by all pairs at a vertex of least degree.

    Vertices 0..p−1 are the values of a, p..2p−1 those of b; c counts isolated vertices too.
    """
    left, right = a.copy(), p + b
    found = []
    while True:
        ends = (np.ones(len(left)), (left, right))
        graph = sparse.coo_array(ends, shape=(2 * p, 2 * p))
        found.append((len(a) - len(left), int(connected_components(graph, directed=False)[0])))
        if not len(left):
            return found
        degree = np.bincount(np.concatenate([left, right]), minlength=2 * p)
        least = int(np.where(degree > 0, degree, len(a) + 1).argmin())
        keep = (left != least) & (right != least)
        left, right = left[keep], right[keep]
