"""Networks whose learning coefficient is known: the ones a sampler is calibrated on.

Every builder returns (model, w*): zero loss at w*, weights from a SeedSequence of their own. No
trained network is among them.

Symbols and shapes
    p, K, n    outputs, hidden neurons, pairs or points        w*  (d,) the teacher's weights
    λ          known coefficient, ½ rank J where the rank is locally constant
    h          curvatures at w*; multiplying all weights by t multiplies every h by t⁴
    scale      standard deviation of the teacher's weights
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

import theory
from qnet import FrozenFirstLayer, QuadraticNetwork, modular_pairs

Array = NDArray[np.float64]
Built = tuple[QuadraticNetwork | FrozenFirstLayer, Array]

PURPOSE = 0x63616C  # "cal": first word of the SeedSequence of every network made here


@dataclass(frozen=True)
class Case:
    """A planted teacher (gaussian or one-hot inputs) or a network with a frozen first layer."""

    name: str
    kind: str  # gaussian, one-hot, frozen
    p: int
    K: int
    n: int

    @property
    def linear(self) -> bool:
        """True when the loss is exactly quadratic in the sampled weights."""
        return self.kind == "frozen"

    @property
    def known_llc(self) -> float:
        """λ from the closed form of its kind."""
        if self.kind == "gaussian":
            return theory.gaussian_generic(self.K, self.p)
        if self.kind == "one-hot":
            return min(theory.one_hot_generic(self.K, self.p), theory.wide_limit(self.n, self.p))
        return theory.frozen_first_layer(min(self.K, self.n - 1), self.p)

    @property
    def origin(self) -> str:
        """The closed form that gives the known λ."""
        if self.kind == "gaussian":
            full = self.K * (3 * self.p - 1) <= self.p**2 * (2 * self.p + 1)
            return "½K(3p−1)" if full else "½p²(2p+1)"
        if self.kind == "one-hot":
            wide = self.known_llc == theory.wide_limit(self.n, self.p)
            return "½p(n−1)" if wide else "½K(3p−2)"
        return "½p·rank(CZ²)"

    def build(self, scale: float = 1.0) -> Built:
        """(model, w*) with normal weights of standard deviation `scale`."""
        rng = np.random.default_rng(np.random.SeedSequence([PURPOSE, self.p, self.K, self.n]))
        if self.kind == "gaussian":
            inputs = rng.standard_normal((self.n, 2 * self.p))
            net = QuadraticNetwork(inputs, np.zeros((self.n, self.p)), self.K)
        else:
            pairs = modular_pairs(self.p, self.n / self.p**2, seed=0)
            net = QuadraticNetwork.modular(self.p, self.K, *pairs)
        w = scale * rng.standard_normal(net.n_params)
        teacher = net.with_targets(net.outputs(w))
        if not self.linear:
            return teacher, w
        frozen = teacher.frozen(w)
        return frozen, frozen.output_weights(w)


# The eight networks of the source, in its order: true λ 21, 60, 31.5, 93, 294, 80.5, 242, 578.
CASES = (
    Case("gaussian_5_3", "gaussian", 5, 3, 300),
    Case("gaussian_7_6", "gaussian", 7, 6, 400),
    Case("gaussian_3_20", "gaussian", 3, 20, 200),
    Case("one_hot_11_6", "one-hot", 11, 6, 60),
    Case("one_hot_17_12", "one-hot", 17, 12, 144),
    Case("one_hot_7_14", "one-hot", 7, 14, 24),
    Case("frozen_11_44", "frozen", 11, 44, 60),
    Case("frozen_17_68", "frozen", 17, 68, 144),
)


@dataclass(frozen=True)
class Sloppy:
    """An exactly linear model with curvatures spread log-uniformly over ten decades.

    p outputs share K centred features of n points, so every curvature occurs p times. λ is half the
    rank; the answer at a finite setting is the exact law. These are the cases whose curvatures
    straddle gamma/n_beta: a missing gamma, or a burn-in that is averaged in, shows here and not on
    CASES.
    """

    name: str
    p: int
    K: int
    n: int
    h_max: float

    linear = True
    origin = "½pK"

    @property
    def known_llc(self) -> float:
        """½ rank: the reading at an infinitely fine resolution."""
        return 0.5 * self.p * self.K

    def build(self) -> Built:
        """(model, w*) with Hessian eigenvalues log-uniform on [1e-10·h_max, h_max]."""
        rng = np.random.default_rng(np.random.SeedSequence([PURPOSE, self.p, self.K, self.n, 1]))
        points = rng.standard_normal((self.n, self.K))
        basis = np.linalg.qr(points - points.mean(axis=0))[0]  # orthonormal and centred
        h = self.h_max * 10.0 ** -np.linspace(0.0, 10.0, self.K)
        features = basis * np.sqrt(self.n * h)
        w = rng.standard_normal(self.p * self.K)
        return FrozenFirstLayer(features, features @ w.reshape(self.p, self.K).T), w


SLOPPY = (Sloppy("sloppy_wide", 16, 150, 200, 1e2), Sloppy("sloppy_low", 16, 150, 200, 1e-1))


def scale_for_flat_share(h: Array, share: float, resolution: float) -> float:
    """The weight scale t at which this share of the curvatures t⁴·h lies below the resolution.

    Given the non-zero curvatures h of a teacher at scale 1. Raises ValueError unless 0 < share < 1.
    """
    if not 0 < share < 1:
        raise ValueError(f"share must lie in (0, 1), got {share}")
    return float((resolution / np.quantile(h, share)) ** 0.25)


def null_network(
    p: int, K: int, a: ArrayLike, b: ArrayLike, *, input_scale: float, output_scale: float
) -> Built:
    """(model, w*) of random weights at the size and scale of a grokked network.

    u and v have standard deviation `input_scale`, W has `output_scale`; the targets are the
    network's own outputs, so λ is half the rank of J wherever that meets its bound.
    """
    net = QuadraticNetwork.modular(p, K, a, b)
    rng = np.random.default_rng(np.random.SeedSequence([PURPOSE, p, K, 2]))
    w = rng.standard_normal(net.n_params)
    w *= np.repeat([input_scale, input_scale, output_scale], p * K)
    return net.with_targets(net.outputs(w)), w
