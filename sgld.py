"""Full-batch SGLD around a reference point, with nothing averaged in that should not be.

    w_{t+1} = w_t − (ε/2)[n_beta·∇L_n(w_t) + gamma·(w_t − w*)] + √ε ξ_t,    ξ_t ~ N(0, I),  w_0 = w*
    λ̂ = n_beta·(mean over chains and steps B ≤ t < T of L_n(w_t) − L_n(w*))

Symbols and shapes
    C, T, B   chains, steps, burn_in           d      number of sampled weights
    w*        (d,) reference point             δ      (C, d) w − w*
    U         n_beta·L_n + (gamma/2)|δ|², the energy;  G = ∇U, (C, d)
    ε         step, weights² per step;  a_max = n_beta·h_max + gamma, stable for ε·a_max < 4
    h_max     top eigenvalue of the Gauss-Newton matrix at w*

L_n is recorded before each update, every step; every 10th is kept in the result. Chain c draws from
its own stream (`chain_stream`), and no sum runs across chains, so a chain's bits depend neither on
the chains beside it nor on the number of worker processes. (BLAS may round differently on several
threads: the scripts run one thread per process.)

What clarity costs: all T losses of every chain are held until the end, 8·C·T bytes.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

import curvature
import theory
from chains import BLOCKS, DeadChain, Model, Reading, summarise

Array = NDArray[np.float64]
Progress = Callable[[int], None]  # called with the number of chain-steps just done

PURPOSE = 0x73676C64  # "sgld": the first word of every chain's SeedSequence
KEEP_EVERY = 10  # steps between kept losses
REPORT_EVERY = 100  # steps between calls of the progress callback
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Settings:
    """All that decides a run besides the model and w*; checked on construction.

    n_beta, gamma and step (ε) are positive; steps leaves 2·BLOCKS beyond burn_in to average.
    `seed` names the case: one word or several, each in 0..2³²−1. Raises ValueError.
    """

    n_beta: float
    gamma: float
    step: float
    chains: int
    steps: int
    burn_in: int
    seed: int | tuple[int, ...]

    def __post_init__(self) -> None:
        for name in ("n_beta", "gamma", "step"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be positive and finite, got {value}")
        for name in ("chains", "steps", "burn_in"):
            if not isinstance(getattr(self, name), int | np.integer):
                raise ValueError(f"{name} must be a whole number, got {getattr(self, name)!r}")
        if self.chains < 1:
            raise ValueError(f"chains must be at least 1, got {self.chains}")
        if not 0 <= self.burn_in <= self.steps - 2 * BLOCKS:
            raise ValueError(
                f"burn_in must be ≥ 0 and leave at least {2 * BLOCKS} steps: "
                f"got burn_in {self.burn_in} of {self.steps} steps"
            )
        for word in self.case:
            if not (isinstance(word, int | np.integer) and 0 <= word < 2**32):
                raise ValueError(f"seed must be whole numbers in 0..2^32−1, got {self.seed!r}")

    @property
    def case(self) -> tuple[int, ...]:
        """The words of the seed."""
        return self.seed if isinstance(self.seed, tuple) else (self.seed,)


@dataclass(frozen=True)
class Sample:
    """The result of `sample`: λ̂, its doubts, and the traces to check them by."""

    settings: Settings
    reading: Reading
    loss_at_reference: float
    traces: Array  # (C, ⌈T/10⌉) L_n(w_t) at t = 0, 10, 20, …, burn-in included
    distances: Array  # (C, ⌈T/10⌉) |w_t − w*| at the same steps
    end_points: Array  # (C, d) the weights after the last step
    mala_acceptance: float  # mean probability that MALA would accept SGLD's own proposals
    doubts: tuple[str, ...]

    @property
    def llc(self) -> float:
        """λ̂, the mean over chains."""
        return self.reading.llc

    @property
    def llc_per_chain(self) -> Array:
        """λ̂ of each chain, (C,)."""
        return self.reading.llc_per_chain

    @property
    def standard_error(self) -> float:
        """Standard error of λ̂: the larger of between-chains and autocorrelation."""
        return self.reading.standard_error

    @property
    def settled(self) -> bool:
        """True when no reason for doubt was found; the reasons are in `doubts`."""
        return not self.doubts


def sample(
    model: Model,
    w_star: ArrayLike,
    *,
    n_beta: float,
    gamma: float,
    step: float,
    chains: int = 4,
    steps: int = 10_000,
    burn_in: int = 2_000,
    seed: int | tuple[int, ...] = 0,
    h_max: float | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> Sample:
    """Estimate the local learning coefficient at w* by full-batch SGLD.

    Given any model with `loss_and_grad` and w* (d,). `h_max` is found by Lanczos when it is not
    given and the model has `jvp` and `vjp`. Raises theory.UnstableStep before the first step when
    ε·a_max ≥ 4, DeadChain as soon as a chain stops being finite, ValueError on bad settings.
    With `workers` > 1 the calling script needs the usual `if __name__ == "__main__"`.
    Source: Lau et al. 2023 in the half-step form; its exact law on a quadratic is E10.
    """
    settings = Settings(n_beta, gamma, step, chains, steps, burn_in, seed)
    start = _checked_reference(model, w_star)
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    a_max = _stable_curvature(model, start, settings, h_max)
    run = _run_all(model, start, settings, a_max, workers, progress or _silent)
    loss_at_reference = float(run.losses[0, 0])  # recorded before the first update: L_n(w*)
    reading = summarise(run.losses, loss_at_reference, n_beta=n_beta, burn_in=burn_in)
    why = (not_a_minimum(model, start),) if reading.llc < 0 else ()
    return Sample(
        settings=settings,
        reading=reading,
        loss_at_reference=loss_at_reference,
        traces=run.losses[:, ::KEEP_EVERY].copy(),
        distances=run.distances,
        end_points=run.end_points,
        mala_acceptance=float(run.acceptance.mean()),
        doubts=reading.doubts + why,
    )


def not_a_minimum(model: Model, w_star: Array) -> str:
    """Why λ̂ came out negative: the smallest Hessian eigenvalue and the gradient norm at w*."""
    slope = np.linalg.norm(model.loss_and_grad(w_star)[1])
    lowest = "unknown (the model has no hvp)"
    if hasattr(model, "hvp"):
        hessian = curvature.hessian_operator(model, w_star)
        lowest = f"{curvature.smallest_eigenvalue(hessian):.4g}"
    return (
        f"w* is not a minimum: smallest Hessian eigenvalue {lowest}, gradient norm {slope:.4g}; "
        "polish further before measuring"
    )


def mala_acceptance(
    previous: Array,
    proposed: Array,
    *,
    previous_energy: Array | float,
    proposed_energy: Array | float,
    previous_gradient: Array,
    proposed_gradient: Array,
    step: float,
) -> Array:
    """Probability that MALA accepts the move, (…,) for points and energy gradients (…, d).

    min(1, exp(U − U' + log q(w|w') − log q(w'|w))), q the proposal SGLD makes. A diagnostic: SGLD
    never rejects. Source: Roberts and Tweedie 1996.
    """
    move = proposed - previous
    there = move + 0.5 * step * previous_gradient
    back = 0.5 * step * proposed_gradient - move
    transition = (np.vecdot(there, there) - np.vecdot(back, back)) / (2.0 * step)
    return np.exp(np.minimum(0.0, previous_energy - proposed_energy + transition))


def chain_stream(case: tuple[int, ...], chain: int) -> np.random.Generator:
    """The noise of one chain of a case (words in 0..2³²−1).

    The number of words is part of the seed: SeedSequence pads with zeros, and without it the cases
    (1,) and (1, 0) would share a stream.
    """
    return np.random.default_rng(np.random.SeedSequence([PURPOSE, len(case), *case, chain]))


# ---- before the first step ---------------------------------------------------------------------


def _checked_reference(model: Model, w_star: ArrayLike) -> Array:
    """w* as an own (d,) array; refused unless the model takes it batched, as the chains will."""
    start = np.array(w_star, dtype=np.float64)
    if start.ndim != 1 or start.size == 0:
        raise ValueError(f"w_star must be a vector of weights, got shape {start.shape}")
    if not np.isfinite(start).all():
        bad = int(np.flatnonzero(~np.isfinite(start))[0])
        raise ValueError(f"w_star must be finite: weight {bad} is {start[bad]}")
    batch = np.stack([start, start])
    with np.errstate(over="ignore", invalid="ignore"):
        loss, gradient = model.loss_and_grad(batch)
    if np.shape(loss) != (2,) or np.shape(gradient) != batch.shape:
        raise ValueError(
            f"loss_and_grad must map (C, d) to (C,) and (C, d): it mapped {batch.shape} to "
            f"{np.shape(loss)} and {np.shape(gradient)}; give the model a chain axis"
        )
    if not (np.isfinite(loss).all() and np.isfinite(gradient).all()):
        raise ValueError(
            f"loss and gradient must be finite at w*: the loss there is {np.ravel(loss)[0]}"
        )
    return start


def _stable_curvature(
    model: Model, w_star: Array, settings: Settings, h_max: float | None
) -> float | None:
    """a_max at w*, refused when the step is not stable there; None when h_max cannot be known."""
    if h_max is None and all(hasattr(model, verb) for verb in ("jvp", "vjp")):
        h_max = curvature.top_eigenvalue(curvature.gauss_newton_operator(model, w_star))
    if h_max is None:
        return None
    if not (np.isfinite(h_max) and h_max >= 0):
        raise ValueError(f"h_max must be finite and ≥ 0, got {h_max}")
    a_max = settings.n_beta * h_max + settings.gamma
    theory.check_stable(settings.step, a_max)
    return a_max


# ---- the chains --------------------------------------------------------------------------------


class _Run(NamedTuple):
    """What a group of chains brings home."""

    losses: Array  # (C, T)
    distances: Array  # (C, ⌈T/10⌉)
    end_points: Array  # (C, d)
    acceptance: Array  # (C,) mean MALA acceptance; NaN when no pair of steps was looked at


def _run_chains(
    model: Model,
    w_star: Array,
    settings: Settings,
    group: range,
    a_max: float | None,
    report: Progress,
) -> _Run:
    """Run the chains of the given indices side by side, batched over the chain axis."""
    streams = [chain_stream(settings.case, c) for c in group]
    n_beta, gamma = settings.n_beta, settings.gamma
    half_eps, root_eps = 0.5 * settings.step, settings.step**0.5
    losses = np.empty((len(group), settings.steps))
    diary = _Diary(settings, len(group))
    # Written in place throughout: at 30,000 weights a fresh array costs more than the arithmetic.
    delta, w, force, spring, noise = np.zeros((5, len(group), len(w_star)))
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused by name
        for t in range(settings.steps):
            np.add(w_star, delta, out=w)
            loss, gradient = model.loss_and_grad(w)
            losses[:, t] = loss
            if not np.isfinite(losses[:, t]).all():
                raise _diverged(settings, a_max, group, losses[:, t], t)
            np.multiply(n_beta, gradient, out=force)
            np.multiply(gamma, delta, out=spring)
            force += spring
            diary.note(t, delta, losses[:, t], force)
            for stream, row in zip(streams, noise, strict=True):
                stream.standard_normal(out=row)
            noise *= root_eps
            force *= half_eps
            delta -= force
            delta += noise
            if (t + 1) % REPORT_EVERY == 0:
                report(REPORT_EVERY * len(group))
    if not np.isfinite(delta).all():
        raise _diverged(settings, a_max, group, np.abs(delta).max(axis=1), settings.steps)
    report(settings.steps % REPORT_EVERY * len(group))
    return _Run(losses, diary.distances, w_star + delta, diary.acceptance())


class _Diary:
    """Diagnostics of a run: every 10th distance and, after burn-in, the acceptance of its move."""

    def __init__(self, settings: Settings, chains: int) -> None:
        self._settings = settings
        self.distances = np.empty((chains, -(-settings.steps // KEEP_EVERY)))
        self._accepted: list[Array] = []
        self._before: tuple[Array, Array, Array] | None = None

    def note(self, t: int, delta: Array, loss: Array, force: Array) -> None:
        """Look at step t: δ (C, d), L_n (C,) and the energy gradient (C, d)."""
        if self._before is not None:
            self._accepted.append(self._acceptance(self._before, (delta, loss, force)))
            self._before = None
        if t % KEEP_EVERY == 0:
            self.distances[:, t // KEEP_EVERY] = np.linalg.norm(delta, axis=1)
            if t >= self._settings.burn_in:
                self._before = (delta.copy(), loss, force.copy())

    def acceptance(self) -> Array:
        """Mean over the moves looked at, (C,)."""
        if not self._accepted:
            return np.full(len(self.distances), np.nan)
        return np.mean(self._accepted, axis=0)

    def _acceptance(
        self, old: tuple[Array, Array, Array], new: tuple[Array, Array, Array]
    ) -> Array:
        n_beta, gamma = self._settings.n_beta, self._settings.gamma
        energies = [
            n_beta * L + 0.5 * gamma * np.vecdot(delta, delta) for delta, L, _ in (old, new)
        ]
        return mala_acceptance(
            old[0],
            new[0],
            previous_energy=energies[0],
            proposed_energy=energies[1],
            previous_gradient=old[2],
            proposed_gradient=new[2],
            step=self._settings.step,
        )


def _diverged(
    settings: Settings, a_max: float | None, group: range, values: Array, t: int
) -> DeadChain:
    """The refusal for the first chain whose value, a loss or a distance, is not finite."""
    bad = int(np.flatnonzero(~np.isfinite(values))[0])
    known = "unknown" if a_max is None else f"{settings.step * a_max:.4g}"
    return DeadChain(
        f"chain {group[bad]} is not finite at step {t}: it holds {values[bad]}. ε·a_max at w* is "
        f"{known}, stable below 4, so the curvature on the way exceeds the curvature at w*: lower "
        "the step or raise gamma. No average over the other chains is made"
    )


def _silent(done: int) -> None:
    """The progress callback of a caller who gave none."""


# ---- worker processes --------------------------------------------------------------------------


def _run_all(
    model: Model,
    w_star: Array,
    settings: Settings,
    a_max: float | None,
    workers: int,
    report: Progress,
) -> _Run:
    """All chains, in one process or in groups of neighbours over several."""
    count = min(workers, settings.chains)
    if count == 1:
        return _run_chains(model, w_star, settings, range(settings.chains), a_max, report)
    edges = [settings.chains * k // count for k in range(count + 1)]
    groups = [range(first, stop) for first, stop in itertools.pairwise(edges)]
    context = multiprocessing.get_context("spawn")
    done, stop_signal = context.Value("q", 0), context.Event()
    with ProcessPoolExecutor(count, context, _enter_worker, (done, stop_signal)) as pool:
        try:
            with _inherited_by_workers():
                jobs = [pool.submit(_work, model, w_star, settings, g, a_max) for g in groups]
            _follow(jobs, done, report)
        except BaseException:  # Ctrl-C too
            stop_signal.set()
            raise
        runs = [job.result() for job in jobs]
    return _Run(*(np.concatenate(parts) for parts in zip(*runs, strict=True)))


def _follow(jobs: list[Future[_Run]], done: Any, report: Progress) -> None:
    """Report the chain-steps of all workers until every job is done; raise the first failure."""
    seen, waiting = 0, set(jobs)
    while waiting:
        finished, waiting = wait(waiting, timeout=0.2, return_when=FIRST_EXCEPTION)
        now = done.value
        report(now - seen)
        seen = now
        for job in finished:
            job.result()


@contextmanager
def _inherited_by_workers() -> Iterator[None]:
    """Processes spawned inside use one BLAS thread and ignore Ctrl-C: the parent stops them."""
    saved = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    heard = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, heard)
        for name, value in saved.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class _Stopped(RuntimeError):
    """In a worker: the parent gave up, so the chains end early."""


_shared: Any = None  # in a worker process: (counter of chain-steps, stop signal)


def _enter_worker(done: Any, stop_signal: Any) -> None:
    global _shared
    _shared = done, stop_signal


def _work(
    model: Model, w_star: Array, settings: Settings, group: range, a_max: float | None
) -> _Run:
    return _run_chains(model, w_star, settings, group, a_max, _count)


def _count(chain_steps: int) -> None:
    done, stop_signal = _shared
    parent = multiprocessing.parent_process()
    if parent is None or not parent.is_alive():
        os._exit(1)  # nobody is left to take a result: an idle worker would wait for ever
    if stop_signal.is_set():
        raise _Stopped("the run was given up")
    with done.get_lock():
        done.value += chain_steps
