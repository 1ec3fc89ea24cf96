"""The multilayer perceptron under the squared loss: any widths, three activations, flat weights.

    a_l = φ(W_l a_{l−1} + b_l), l = 1 … L−1        f = W_L a_{L−1} + b_L
    L_n(w) = |f − y|² / divisor                    summed over examples and outputs

Symbols and shapes
    n   examples            D   input size          C   outputs             L   layers of weights
    H_l widths, H_0 = D, H_L = C                    d   number of weights   m   rows of J, n·C
    B   a leading batch axis (chains, or vectors to multiply)
    w   (d,) or (B, d): per layer, per neuron, its incoming weights and then its bias
    ã   (n, H+1) activations with a column of ones, so that one matrix [W_l | b_l] is a layer
    δ_l (…, H_l) derivative with respect to the pre-activations of layer l
    r   (m,) residuals f − y, example-major, then output: the row order of J
    J   (m, d) Jacobian of f; ∇L_n = hessian_scale·Jᵀr; H = hessian_scale·(JᵀJ + Σ r_ik ∇²f_ik)
    μ   one multiplier per tensor: the network computes with μθ, so row (i, k) of J is
        μ ∘ (δ_l ⊗ ã_{l−1}), layer beside layer

The scale is fixed by the divisor: hessian_scale = 2/divisor. "nC" is the mean over examples and
outputs, "n" the mean over examples, "2n" its half (the scale of the quadratic network).
h/(h + c) is meaningless without it.

At a kink of the ReLU, z = 0, the derivative is taken as 0, as if the neuron were off; second
derivatives of the ReLU are 0 everywhere. Every derivative here follows this one convention.

What clarity costs: `jacobian` is dense (m × d) and serves the small; `gram`, `jvp`, `vjp` and `hvp`
serve the wide. Every verb recomputes the forward pass; nothing is cached between calls.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

GRAM_TILE_ROWS = 320  # a tile of the Gram matrix is 320²: 0.8 MB, inside the cache
INIT_GAIN = 1.0 / 3.0  # variance of an initial weight times its fan-in


class Activation(NamedTuple):
    """φ and its derivatives, these as functions of a = φ(z): a forward pass keeps a, not z."""

    apply: Callable[[Array], object]  # z -> φ(z), in place
    slope: Callable[[Array], Array]  # φ′
    bend: Callable[[Array], Array]  # dφ′/da, so that the rate of φ′ is bend·(rate of a)


ACTIVATIONS = {
    "relu": Activation(lambda z: np.maximum(z, 0.0, out=z), np.sign, np.zeros_like),
    "tanh": Activation(lambda z: np.tanh(z, out=z), lambda a: 1.0 - a * a, lambda a: -2.0 * a),
    "identity": Activation(lambda z: z, np.ones_like, np.zeros_like),
}


class UnmovedFunction(ArithmeticError):
    """The outputs at both weight vectors are equal: an error relative to their change is 0/0."""


class MLP:
    """A multilayer perceptron on fixed inputs (n, D) and targets (n, C); speaks `chains.Model`.

    widths       hidden widths, [] for linear regression
    activation   "relu", "tanh" or "identity"
    biases       whether every layer has a bias
    divisor      "nC", "n" or "2n": L_n = |r|²/divisor
    multipliers  one positive factor per tensor in the order of `names`, or None for ones

    `outputs`, `residuals`, `loss` and `loss_and_grad` take w (d,) or (B, d); the products take one
    w and one vector or a batch of them. Raises ValueError on wrong shapes, unknown names and values
    that are not finite.
    """

    def __init__(
        self,
        inputs: ArrayLike,
        targets: ArrayLike,
        widths: Sequence[int],
        *,
        activation: str = "relu",
        biases: bool = True,
        divisor: Literal["nC", "n", "2n"] = "nC",
        multipliers: Sequence[float] | None = None,
    ) -> None:
        self.widths, self.activation = tuple(int(width) for width in widths), activation
        self.biases, self.divisor = bool(biases), divisor
        _check_architecture(self.widths, activation, divisor)
        self._phi = ACTIVATIONS[activation]
        self._take_data(inputs, targets)
        self._sizes = (self.inputs.shape[1], *self.widths, self.n_outputs)
        self.n_params = sum(rows * columns for rows, columns in self._layer_shapes())
        self._take_multipliers([1.0] * len(self.names) if multipliers is None else multipliers)

    def _take_data(self, inputs: ArrayLike, targets: ArrayLike) -> None:
        self.inputs = np.asarray(inputs, dtype=np.float64)
        self.targets = np.asarray(targets, dtype=np.float64)
        _check_data(self.inputs, self.targets)
        self.n, self.n_outputs = self.targets.shape
        self._inputs_and_ones = np.hstack([self.inputs, np.ones((self.n, int(self.biases)))])
        divisors = {"nC": self.n * self.n_outputs, "n": self.n, "2n": 2 * self.n}
        self.hessian_scale = 2.0 / divisors[self.divisor]

    def _take_multipliers(self, multipliers: Sequence[float]) -> None:
        if not all(0.0 < factor < np.inf for factor in multipliers):
            raise ValueError(f"multipliers must be positive and finite: got {multipliers}")
        self.multipliers = tuple(float(factor) for factor in multipliers)
        self._mu = self.expand(self.multipliers)

    def with_targets(self, targets: ArrayLike) -> MLP:
        """The same network and inputs with other targets (n, C): `net.with_targets(net.outputs(w))`
        is the planted teacher whose loss is zero at w."""
        if np.shape(targets) != self.targets.shape:
            raise ValueError(f"targets must be {self.targets.shape}: got {np.shape(targets)}")
        other = copy.copy(self)
        other._take_data(self.inputs, targets)
        return other

    def subset(self, rows: ArrayLike) -> MLP:
        """The same network on some of the examples: a minibatch, or one example. Its divisor counts
        the chosen rows, so the loss of a random minibatch estimates the whole loss."""
        part = copy.copy(self)
        part._take_data(self.inputs[np.asarray(rows)], self.targets[np.asarray(rows)])
        return part

    def lazy(self, w_0: ArrayLike, alpha: float) -> MLP:
        """The network α(f − f_0), f_0 = f(w_0) (Chizat, Oyallon & Bach 2019, section 1).

        α multiplies the tensors of the output layer and α·f_0 is added to the targets, which leaves
        r = α(f − f_0) − y; `outputs` then returns α·f. Train it at a learning rate divided by α².
        Raises ValueError unless alpha is positive and finite.
        """
        last = str(len(self._sizes) - 1)
        factors = [alpha if name[1:] == last else 1.0 for name in self.names]
        scaled = copy.copy(self)
        scaled._take_multipliers(list(np.multiply(factors, self.multipliers)))
        return scaled.with_targets(self.targets + scaled.outputs(w_0))

    # ---- weights ---------------------------------------------------------------------------

    def _layer_shapes(self) -> list[tuple[int, int]]:
        """(H_l, H_{l−1} + 1) of each [W_l | b_l]; without biases the last column is missing."""
        pairs = zip(self._sizes[1:], self._sizes[:-1], strict=True)
        return [(out, into + self.biases) for out, into in pairs]

    def _layers(self, w: Array) -> list[Array]:
        """Views (…, H_l, H_{l−1}+1) into w (…, d); writing to them writes to w."""
        shapes = self._layer_shapes()
        ends = np.cumsum([rows * columns for rows, columns in shapes])
        parts = np.split(w, ends[:-1], axis=-1)
        return [
            part.reshape(*w.shape[:-1], *shape) for part, shape in zip(parts, shapes, strict=True)
        ]

    @property
    def names(self) -> tuple[str, ...]:
        """The tensors in order: W1, b1, W2, b2, …; the b are missing without biases."""
        kinds = "Wb" if self.biases else "W"
        return tuple(f"{kind}{layer}" for layer in range(1, len(self._sizes)) for kind in kinds)

    def unpack(self, w: ArrayLike) -> list[Array]:
        """The tensors of w (…, d) in the order of `names`: W_l (…, H_l, H_{l−1}), b_l (…, H_l).

        They are views wherever w is a float64 array, and carry no multiplier.
        """
        layers = self._layers(self._checked(w))
        if not self.biases:
            return layers
        return [tensor for layer in layers for tensor in (layer[..., :-1], layer[..., -1])]

    def pack(self, tensors: Sequence[ArrayLike]) -> Array:
        """(d,) or (B, d) from the tensors in the order of `names`; the inverse of `unpack`."""
        arrays = [np.asarray(tensor, dtype=np.float64) for tensor in tensors]
        lead = arrays[0].shape[:-2] if arrays else ()
        w = np.empty((*lead, self.n_params))
        places = self.unpack(w)
        if [place.shape for place in places] != [array.shape for array in arrays]:
            wanted, got = [place.shape for place in places], [array.shape for array in arrays]
            raise ValueError(f"tensors {self.names} must have shapes {wanted}: got {got}")
        for place, array in zip(places, arrays, strict=True):
            place[...] = array
        return w

    def expand(self, values: Sequence[float]) -> Array:
        """(d,) from one number per tensor in the order of `names`: learning rates, step sizes."""
        if len(values) != len(self.names):
            raise ValueError(f"need one value for each of {self.names}: got {len(values)}")
        w = np.empty(self.n_params)
        for place, value in zip(self.unpack(w), values, strict=True):
            place[...] = value
        return w

    def initial_weights(self, seed: int) -> Array:
        """(d,) Gaussian weights of variance 1/(3·fan-in), biases 0; multipliers do not enter."""
        rng = np.random.default_rng(np.random.SeedSequence([0x6D6C70, seed]))  # "mlp"
        w = np.zeros(self.n_params)
        for tensor, name in zip(self.unpack(w), self.names, strict=True):
            if name.startswith("W"):
                deviation = np.sqrt(INIT_GAIN / tensor.shape[1])
                tensor[...] = deviation * rng.standard_normal(tensor.shape)
        return w

    def _checked(self, w: ArrayLike) -> Array:
        w = np.asarray(w, dtype=np.float64)
        if w.ndim not in (1, 2) or w.shape[-1] != self.n_params:
            raise ValueError(
                f"weights must be ({self.n_params},) or (B, {self.n_params}): got {w.shape}"
            )
        return w

    def _effective(self, w: ArrayLike) -> list[Array]:
        """The layers the network computes with, μθ."""
        return self._layers(self._checked(w) * self._mu)

    def _bare(self, x: Array) -> Array:
        """W_l out of [W_l | b_l], a_l out of ã_l: x without the last column that biases add."""
        return x[..., : x.shape[-1] - self.biases]

    # ---- forward and backward --------------------------------------------------------------

    def _forward(self, layers: list[Array]) -> tuple[list[Array], Array]:
        """ã_0 … ã_{L−1}, each (…, n, H+1), and f (…, n, C)."""
        activations = [self._inputs_and_ones]
        for layer, width in zip(layers[:-1], self.widths, strict=True):
            a = np.empty((*layer.shape[:-2], self.n, width + self.biases))
            a[..., width:] = 1.0
            np.matmul(activations[-1], layer.mT, out=a[..., :width])
            self._phi.apply(a[..., :width])
            activations.append(a)
        return activations, activations[-1] @ layers[-1].mT

    def _push(
        self, layers: list[Array], tangents: list[Array], activations: list[Array]
    ) -> list[Array]:
        """Rates of a_1 … a_{L−1} and of f as the layers move along the tangents (forward mode)."""
        rates: list[Array] = []
        for index, tangent in enumerate(tangents):
            rate = activations[index] @ tangent.mT
            if rates:
                rate += rates[-1] @ self._bare(layers[index]).mT
            if index < len(self.widths):
                rate *= self._phi.slope(self._bare(activations[index + 1]))
            rates.append(rate)
        return rates

    def _pull(self, layers: list[Array], activations: list[Array], delta: Array) -> Array:
        """(…, d) derivative with respect to w, from δ_L (…, n, C) (reverse mode)."""
        gradient = np.empty((*delta.shape[:-2], self.n_params))
        places = self._layers(gradient)
        for index in reversed(range(len(layers))):
            np.matmul(delta.mT, activations[index], out=places[index])
            if index:
                delta = self._back(delta, layers[index], activations[index])
        gradient *= self._mu
        return gradient

    def _back(self, delta: Array, layer: Array, activation: Array) -> Array:
        """δ_{l−1} from δ_l, [W_l | b_l] and ã_{l−1}."""
        back = delta @ self._bare(layer)
        back *= self._phi.slope(self._bare(activation))
        return back

    def outputs(self, w: ArrayLike) -> Array:
        """f: (n, C), or (B, n, C) for batched weights."""
        return self._forward(self._effective(w))[1]

    def residuals(self, w: ArrayLike) -> Array:
        """The residuals f − y in the Jacobian's row order: (m,), or (B, m)."""
        f = self.outputs(w)
        return (f - self.targets).reshape(*f.shape[:-2], -1)

    def loss(self, w: ArrayLike) -> float | Array:
        """L_n(w): a float, or (B,)."""
        r = self.residuals(w)
        return 0.5 * self.hessian_scale * np.vecdot(r, r)

    def loss_and_grad(self, w: ArrayLike) -> tuple[float | Array, Array]:
        """L_n and its gradient hessian_scale·Jᵀr, (d,) or (B, d) like w."""
        layers = self._effective(w)
        activations, f = self._forward(layers)
        delta = f - self.targets
        r = delta.reshape(*delta.shape[:-2], -1)
        loss = 0.5 * self.hessian_scale * np.vecdot(r, r)
        return loss, self._pull(layers, activations, self.hessian_scale * delta)

    # ---- products --------------------------------------------------------------------------

    def _point(self, w: ArrayLike) -> tuple[list[Array], list[Array], Array]:
        """Layers, activations and outputs at one weight vector."""
        w = self._checked(w)
        if w.ndim != 1:
            raise ValueError(f"derivatives are taken at one point: w must be ({self.n_params},)")
        layers = self._effective(w)
        return layers, *self._forward(layers)

    def _cotangents(self, y: ArrayLike) -> Array:
        """Weights of the rows of J, y (m,) or (B, m), as (…, n, C)."""
        y = np.asarray(y, dtype=np.float64)
        m = self.n * self.n_outputs
        if y.ndim not in (1, 2) or y.shape[-1] != m:
            raise ValueError(f"y must be ({m},) or (B, {m}), m = n·C rows of J: got {y.shape}")
        return y.reshape(*y.shape[:-1], self.n, self.n_outputs)

    def jvp(self, w: ArrayLike, x: ArrayLike) -> Array:
        """J x without J: (m,) for x (d,), (B, m) for x (B, d)."""
        layers, activations, _ = self._point(w)
        rate = self._push(layers, self._effective(x), activations)[-1]
        return rate.reshape(*rate.shape[:-2], -1)

    def vjp(self, w: ArrayLike, y: ArrayLike) -> Array:
        """Jᵀ y without J: (d,) for y (m,), (B, d) for y (B, m)."""
        layers, activations, _ = self._point(w)
        return self._pull(layers, activations, self._cotangents(y))

    def gauss_newton_product(self, w: ArrayLike, x: ArrayLike) -> Array:
        """hessian_scale·JᵀJ x: (d,) for x (d,), (B, d) for x (B, d); one forward pass."""
        layers, activations, _ = self._point(w)
        rate = self._push(layers, self._effective(x), activations)[-1]
        return self._pull(layers, activations, self.hessian_scale * rate)

    def hvp(self, w: ArrayLike, x: ArrayLike) -> Array:
        """H x with the full Hessian: (d,) for x (d,), (B, d) for x (B, d).

        The R-operator (Pearlmutter 1994): the derivative of the backward pass along x.
        """
        layers, activations, f = self._point(w)
        tangents = self._effective(x)
        rates = self._push(layers, tangents, activations)
        delta = self.hessian_scale * (f - self.targets)
        delta_rate = self.hessian_scale * rates[-1]
        product = np.empty((*delta_rate.shape[:-2], self.n_params))
        places = self._layers(product)
        for index in reversed(range(len(layers))):
            np.matmul(delta_rate.mT, activations[index], out=places[index])
            if index == 0:
                break
            rate, a = rates[index - 1], self._bare(activations[index])
            W, V = self._bare(layers[index]), self._bare(tangents[index])
            self._bare(places[index])[...] += delta.mT @ rate
            slope, back = self._phi.slope(a), delta @ W
            delta_rate = (delta_rate @ W + delta @ V) * slope + back * self._phi.bend(a) * rate
            delta = back * slope
        product *= self._mu
        return product

    # ---- Jacobian and Gram matrix ----------------------------------------------------------

    def _unit_deltas(self, layers: list[Array], activations: list[Array]) -> list[Array]:
        """δ_1 … δ_L, each (m, H_l): row (i, k) is the derivative of output k on example i."""
        deltas = [np.tile(np.eye(self.n_outputs), (self.n, 1))]
        for layer, a in zip(layers[:0:-1], activations[:0:-1], strict=True):
            deltas.append(self._back(deltas[-1], layer, np.repeat(a, self.n_outputs, axis=0)))
        return deltas[::-1]

    def _weighted(self, activations: list[Array]) -> list[Array]:
        """μ ∘ ã per layer: what multiplies δ in a row of J."""
        return [a * mu[0] for a, mu in zip(activations, self._layers(self._mu), strict=True)]

    def jacobian(self, w: ArrayLike) -> Array:
        """J (m, d): in row (i, k) the block of layer l is μ ∘ (δ_l(i, k) ⊗ ã_{l−1}(i))."""
        layers, activations, _ = self._point(w)
        J = np.empty((self.n * self.n_outputs, self.n_params))
        deltas, sources = self._unit_deltas(layers, activations), self._weighted(activations)
        for place, delta, a in zip(self._layers(J), deltas, sources, strict=True):
            rows = np.repeat(a, self.n_outputs, axis=0)
            np.multiply(delta[:, :, None], rows[:, None, :], out=place)
        return J

    def gram(self, w: ArrayLike) -> Array:
        """J Jᵀ (m, m), exactly symmetric, without J: the empirical tangent kernel.

            (J Jᵀ)[(i,k), (i′,k′)] = Σ_l (μã_{l−1}(i) · μã_{l−1}(i′)) (δ_l(i,k) · δ_l(i′,k′))

        Its eigenvalues times hessian_scale are all non-zero Gauss-Newton curvatures. Computed tile
        by tile of examples, one triangle, mirrored. Memory: 8m² bytes, beside them 8m·Σ_l H_l for
        δ and 8n²L for the kernels of the activations.
        """
        layers, activations, _ = self._point(w)
        kernels = [a @ a.T for a in self._weighted(activations)]  # L times (n, n)
        deltas = self._unit_deltas(layers, activations)
        m, C = self.n * self.n_outputs, self.n_outputs
        step = max(1, GRAM_TILE_ROWS // C)
        gram = np.empty((m, m))
        for i in range(0, self.n, step):
            rows = slice(i * C, (i + step) * C)
            for j in range(0, i + 1, step):
                columns = slice(j * C, (j + step) * C)
                blocks = [kernel[i : i + step, j : j + step] for kernel in kernels]
                pairs = [(delta[rows], delta[columns]) for delta in deltas]
                self._fill_tile(gram[rows, columns], blocks, pairs)
                if i != j:
                    gram[columns, rows] = gram[rows, columns].T
        return gram

    def _fill_tile(
        self, tile: Array, kernels: list[Array], deltas: list[tuple[Array, Array]]
    ) -> None:
        """Σ_l kernel_l(i, i′)·(δ_l(i,k) · δ_l(i′,k′)) for the examples i, i′ of one tile."""
        tile[...] = 0.0
        for kernel, (left, right) in zip(kernels, deltas, strict=True):
            shape = (len(kernel), self.n_outputs, kernel.shape[1], self.n_outputs)
            products = (left @ right.T).reshape(shape)
            products *= kernel[:, None, :, None]
            tile += products.reshape(tile.shape)

    def gram_trace(self, w: ArrayLike) -> float:
        """The trace of J Jᵀ without it, at the cost of its δ alone: O(m·Σ_l H_l H_{l+1}).

        Times hessian_scale it is the trace of the Gauss-Newton matrix.
        """
        layers, activations, _ = self._point(w)
        total = 0.0
        deltas = self._unit_deltas(layers, activations)
        for a, delta in zip(self._weighted(activations), deltas, strict=True):
            sizes = np.vecdot(delta, delta).reshape(self.n, self.n_outputs).sum(axis=1)
            total += float(np.vecdot(a, a) @ sizes)
        return total

    def rank_ceiling(self) -> int:
        """An upper bound of rank J for all weights: min(m, d − hidden neurons), for tanh min(m, d).

        Scaling the incoming weights of a neuron by s and its outgoing ones by 1/s leaves a ReLU or
        identity network unchanged: one null direction of J per hidden neuron.
        """
        symmetries = 0 if self.activation == "tanh" else sum(self.widths)
        return min(self.n * self.n_outputs, self.n_params - symmetries)

    # ---- how far training went -------------------------------------------------------------

    def weight_drift(self, w_T: ArrayLike, w_0: ArrayLike) -> dict[str, float]:
        """|θ_T − θ_0|/|θ_0| per tensor, and over all weights under "all".

        A tensor that starts at 0, as biases do, has drift inf once it moves and 0 before.
        """
        w_T, w_0 = self._checked(w_T), self._checked(w_0)
        tensors = zip(self.names, self.unpack(w_T), self.unpack(w_0), strict=True)
        drift = {name: _relative_change(after, before) for name, after, before in tensors}
        return drift | {"all": _relative_change(w_T, w_0)}

    def linearisation_error(self, w_T: ArrayLike, w_0: ArrayLike) -> float:
        """|f(w_T) − f(w_0) − J(w_0)(w_T − w_0)| / |f(w_T) − f(w_0)|.

        0 where f is linear along the way, above 1 where the linear prediction is worse than none.

        Raises UnmovedFunction if the outputs are equal at both.
        """
        w_T, w_0 = self._checked(w_T), self._checked(w_0)
        moved = (self.outputs(w_T) - self.outputs(w_0)).ravel()
        size = float(np.linalg.norm(moved))
        if size == 0.0:
            raise UnmovedFunction(
                "f(w_T) = f(w_0): compare weights between which the outputs changed"
            )
        return float(np.linalg.norm(moved - self.jvp(w_0, w_T - w_0))) / size


def _relative_change(after: Array, before: Array) -> float:
    change, size = float(np.linalg.norm(after - before)), float(np.linalg.norm(before))
    if size == 0.0:
        return np.inf if change > 0.0 else 0.0
    return change / size


def _check_data(inputs: Array, targets: Array) -> None:
    if (
        inputs.ndim != 2
        or targets.ndim != 2
        or len(inputs) != len(targets)
        or not inputs.size * targets.size
    ):
        raise ValueError(
            f"need inputs (n, D) and targets (n, C), none of them empty: got {inputs.shape} and "
            f"{targets.shape}"
        )
    if not (np.isfinite(inputs).all() and np.isfinite(targets).all()):
        raise ValueError("inputs and targets must be finite: found NaN or infinity")


def _check_architecture(widths: tuple[int, ...], activation: str, divisor: str) -> None:
    if any(width < 1 for width in widths):
        raise ValueError(f"every width must be at least 1: got {widths}")
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {sorted(ACTIVATIONS)}: got {activation!r}")
    if divisor not in ("nC", "n", "2n"):
        raise ValueError(f'divisor must be "nC", "n" or "2n": got {divisor!r}')
