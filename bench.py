"""Speed and memory as ratios within one run: what a step costs beside what it must cost.

Absolute times belong to a machine and to the hour; ratios travel. Everything runs on one BLAS
thread. The sides of a ratio take turns, round by round, and the median over the rounds of the
round's own ratio counts, so that a busy neighbour slows both sides. Processor time is counted, not
time on the clock, save where processes run side by side.

    floor   the three matrix products of a step's shapes and its normal draws, alone, in place
    oracle  tests/oracles.py: chain by chain, dense one-hot matrices, nothing reused

`python bench.py` runs every section and writes data/bench.json; `python bench.py SECTION …` prints
some of them and writes nothing. Exit status 1 when a limit is missed. A new section is a function
that returns Figures, and a line in SECTIONS.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy loads its BLAS
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import platform
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

import console
import curvature
import digits
import effective_dimension
import exact_rank
import records
import sgld
import theory
from mlp import MLP
from qnet import QuadraticNetwork, modular_pairs
from tests import oracles

Array = NDArray[np.float64]
Work = Callable[[], object]
Result = TypeVar("Result")

OUTPUT = Path(__file__).parent / "data" / "bench.json"
CHAINS = 4
ROUNDS = 15
STEP_CONSTANT, GAMMA, N_BETA = 0.2, 1.0, 1e4  # the source's settings
WORKER_STEPS = 10_000  # the source's chain length: starting the processes is part of the price
SECONDS = 0.1  # processor time of one turn, about
KAPPAS = (10, 100)
PROBES, PROBE_ERROR = 8, 1e-3  # the source's number; dimensions CG may leave in each, as the study


class Size(NamedTuple):
    """A network: modulus, neurons, pairs."""

    p: int
    K: int
    n: int

    def __str__(self) -> str:
        return f"p={self.p}, K={self.K}, n={self.n}"


SMALL, LARGE, WIDE = Size(11, 33, 97), Size(31, 93, 673), Size(31, 124, 673)
SIZES = [Size(5, 15, 18), Size(7, 21, 35), SMALL, Size(17, 51, 202), Size(23, 69, 370), LARGE]


class Figure(NamedTuple):
    """One measured ratio, its limit, and the numbers behind it."""

    what: str
    ratio: float
    limit: float
    at_most: bool  # whether the limit is an upper one
    details: dict[str, float | int]

    @property
    def kept(self) -> bool:
        """Whether the ratio is on the right side of its limit."""
        return self.ratio <= self.limit if self.at_most else self.ratio >= self.limit


# ---- taking turns ------------------------------------------------------------------------------


def take_turns(
    works: dict[str, Work], rounds: int, clock: Callable[[], float] = time.process_time
) -> dict[str, list[float]]:
    """Seconds of each work in each round; the works run one after the other within a round."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            started = clock()
            work()
            seconds[name].append(clock() - started)
    return seconds


def timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """What a work gives, and the processor seconds it took."""
    started = time.process_time()
    result = work()
    return result, time.process_time() - started


def median_ratio(above: list[float], below: list[float]) -> float:
    """Median over the rounds of the ratio within a round."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def repeats(work: Work) -> int:
    """How often to repeat a work so that it takes about SECONDS."""
    work()  # the first time pays for pages and caches
    started = time.process_time()
    work()
    return max(1, round(SECONDS / max(time.process_time() - started, 1e-6)))


# ---- the works ---------------------------------------------------------------------------------


def planted(size: Size) -> tuple[QuadraticNetwork, Array]:
    """A network at a minimum of its loss, where chains are stable: targets := outputs."""
    a, b = modular_pairs(size.p, size.n / size.p**2, 0)
    net = QuadraticNetwork.modular(size.p, size.K, a, b)
    w = net.initial_weights(0, 0.5)
    return net.with_targets(net.outputs(w)), w


def settings(net: QuadraticNetwork, w: Array, steps: int) -> dict[str, Any]:
    """Settings of a run by the step rule, with h_max found beforehand."""
    h_max = curvature.top_eigenvalue(curvature.gauss_newton_operator(net, w))
    step = theory.step_size(STEP_CONSTANT, n_beta=N_BETA, h_max=h_max, gamma=GAMMA)
    return {
        "n_beta": N_BETA,
        "gamma": GAMMA,
        "step": step,
        "steps": steps,
        "burn_in": steps // 5,
        "h_max": h_max,
        "chains": CHAINS,
    }


def floor_step(size: Size) -> Work:
    """The products f = z²Wᵀ, ∂W = rᵀz², g = rW of every chain and its normal draws, in place."""
    rng = np.random.default_rng(0)
    z2, W, r = (
        rng.random((CHAINS, *shape))
        for shape in ((size.n, size.K), (size.p, size.K), (size.n, size.p))
    )
    f, dW, g = np.empty_like(r), np.empty_like(W), np.empty_like(z2)
    noise = np.empty((CHAINS, 3 * size.p * size.K))

    def step() -> None:
        np.matmul(z2, W.swapaxes(1, 2), out=f)
        np.matmul(r.swapaxes(1, 2), z2, out=dW)
        np.matmul(r, W, out=g)
        for row in noise:
            rng.standard_normal(out=row)

    return step


def repeated(work: Work, times: int) -> Work:
    """The work done `times` times as one work."""

    def run() -> None:
        for _ in range(times):
            work()

    return run


def oracle_run(net: QuadraticNetwork, w: Array, options: dict[str, Any]) -> Work:
    """The same chains by the oracle's loop."""
    assert net.a is not None and net.b is not None
    x, _ = oracles.one_hot_task(net.p, net.a, net.b)
    streams = [np.random.default_rng(c) for c in range(CHAINS)]
    kept = {name: options[name] for name in ("n_beta", "gamma", "step", "steps")}
    return partial(oracles.sgld_losses, x, net.targets, w, net.K, streams, **kept)


# ---- sections ----------------------------------------------------------------------------------


def step_over_floor() -> list[Figure]:
    """Cost of a 4-chain SGLD step, through sgld.sample, against the floor."""
    return [_over_floor(SMALL, 2.5), _over_floor(LARGE, 1.6)]


def _over_floor(size: Size, limit: float) -> Figure:
    floor = floor_step(size)
    times = max(20, repeats(floor))
    net, w = planted(size)
    works: dict[str, Work] = {
        "step": partial(sgld.sample, net, w, **settings(net, w, times)),
        "floor": repeated(floor, times),
    }
    seconds = take_turns(works, ROUNDS)
    return Figure(
        f"4-chain SGLD step over its floor, {size}",
        median_ratio(seconds["step"], seconds["floor"]),
        limit,
        True,
        {**size._asdict(), **_microseconds(seconds, times)},
    )


def step_over_oracle() -> list[Figure]:
    """Cost of a 4-chain SGLD step against the obvious loop: never slower."""
    return [_over_oracle(size) for size in SIZES]


def _over_oracle(size: Size) -> Figure:
    steps = max(20, repeats(floor_step(size)) // 2)
    net, w = planted(size)
    options = settings(net, w, steps)
    works: dict[str, Work] = {
        "step": partial(sgld.sample, net, w, **options),
        "oracle": oracle_run(net, w, options),
    }
    seconds = take_turns(works, ROUNDS)
    return Figure(
        f"4-chain SGLD step over the one-hot loop, {size}",
        median_ratio(seconds["step"], seconds["oracle"]),
        1.0,
        True,
        {**size._asdict(), **_microseconds(seconds, steps)},
    )


def two_workers(size: Size = LARGE, steps: int = WORKER_STEPS) -> list[Figure]:
    """Four chains in one process against the same chains in two, on the clock, start included."""
    net, w = planted(size)
    run = partial(sgld.sample, net, w, **settings(net, w, steps))
    works: dict[str, Work] = {"one": partial(run, workers=1), "two": partial(run, workers=2)}
    seconds = take_turns(works, 2, time.perf_counter)
    return [
        Figure(
            f"one worker over two, {steps:,} steps, {size}",
            median_ratio(seconds["one"], seconds["two"]),
            1.7,
            False,
            {**size._asdict(), **_microseconds(seconds, steps)},
        )
    ]


def gram_memory(size: Size = SMALL) -> list[Figure]:
    """Peak memory of the gram route over one Gram matrix plus one block of J, J itself aside."""
    net, w = planted(size)
    J = net.jacobian(w)
    small, long = sorted(J.shape)
    allowed = 8 * (small**2 + min(curvature.BLOCK, long) * small)
    peak = _peak(partial(curvature.singular_values, J, route="gram"))
    details = {**size._asdict(), "peak_bytes": peak, "gram_and_block_bytes": allowed}
    what = f"peak memory of the Gram route over one Gram matrix and one block, {size}"
    # Vectors of J's sides, LAPACK's workspace and Python's own objects: a few percent.
    return [Figure(what, peak / allowed, 1.05, True, details)]


def certified_rank(sizes: tuple[Size, ...] = (LARGE, WIDE)) -> list[Figure]:
    """Processor time and peak memory of a certified rank, and the time of the SVD of the same J."""
    figures = []
    for size, limit in zip(sizes, (20.0, 60.0), strict=True):
        net, w = planted(size)
        (taken,) = take_turns({"rank": partial(exact_rank.network_rank, net, w)}, 1)["rank"]
        peak = _peak(partial(exact_rank.network_rank, net, w))
        details = {**size._asdict(), "peak_bytes": peak}
        figures.append(Figure(f"seconds of a certified rank, {size}", taken, limit, True, details))
        what = f"GiB at the peak of a certified rank, {size}"
        figures.append(Figure(what, peak / 2**30, 2.0, True, details))
    net, w = planted(sizes[0])
    works: dict[str, Work] = {
        "svd": lambda: curvature.singular_values(net.jacobian(w)),
        "rank": partial(exact_rank.network_rank, net, w),
    }
    seconds = {name: taken for name, (taken,) in take_turns(works, 1).items()}
    what = f"SVD of J over its certified rank, {sizes[0]}"
    ratio = seconds["svd"] / seconds["rank"]
    return [*figures, Figure(what, ratio, 1.0, False, {**sizes[0]._asdict(), **seconds})]


def perceptron_curvatures(width: int = 1024, n: int = 1024) -> list[Figure]:
    """A perceptron of the width study: Gram matrix, λ(c) by Cholesky and by probes, spectrum.

    At the initial weights of seed 0, which cost no training; conjugate gradients take about as many
    steps after it. Each κ by Cholesky is charged with the whole Gram matrix.
    """
    net = MLP(*digits.load(n), [width, width])
    w = net.initial_weights(0)
    where, size = f"w={width}, n={n}", {"width": width, "n": n, "d": net.n_params}
    gram, seconds = timed(partial(net.gram, w))
    h_max = net.hessian_scale * curvature.top_eigenvalue(gram)
    figures = [Figure(f"seconds of a Gram matrix, {where}", seconds, 15.0, True, {**size})]
    for kappa in KAPPAS:
        taken = {"gram": seconds, **_both_ways(net, w, gram, h_max / kappa)}
        ratio = taken["probes"] / (taken["gram"] + taken["cholesky"])
        what = f"{PROBES} probes over Gram matrix and Cholesky at κ = {kappa}, {where}"
        figures.append(Figure(what, ratio, 1.0, False, {**size, **taken}))
    del gram
    taken = _whole_spectrum(net, w)
    what = f"seconds of a whole spectrum, {where}"
    figures.append(Figure(what, taken["seconds"], 240.0, True, {**size, **taken}))
    what = f"GiB at the peak of a whole spectrum, {where}"
    return [*figures, Figure(what, taken["peak_bytes"] / 2**30, 3.0, True, {**size, **taken})]


def _both_ways(net: MLP, w: Array, gram: Array, c: float) -> dict[str, float]:
    """λ(c) of one Gauss-Newton matrix and the seconds it took, exactly and by probes with CG."""
    product = effective_dimension.operator(net.n_params, partial(net.gauss_newton_product, w))
    by_cholesky = effective_dimension.cholesky_effective_dimension
    exact, cholesky = timed(partial(by_cholesky, gram, net.hessian_scale, c))
    by_probes = curvature.hutchinson_effective_dimension
    (probed, error), probes = timed(
        partial(by_probes, product, c, probes=PROBES, seed=0, tolerance=PROBE_ERROR)
    )
    return {
        "cholesky": cholesky,
        "probes": probes,
        "exact": exact,
        "probed": probed,
        "standard_error": error,
    }


def _whole_spectrum(net: MLP, w: Array) -> dict[str, float]:
    """Seconds and peak memory of all curvatures, in one run: few allocations are quickly traced."""
    seconds: dict[str, list[float]] = {}

    def spectrum() -> None:
        gram = effective_dimension.gram_matrix(net, w, "eigenvalues")
        effective_dimension.curvatures_of_gram(gram, net.hessian_scale)

    peak = _peak(lambda: seconds.update(take_turns({"spectrum": spectrum}, 1)))
    return {"seconds": seconds["spectrum"][0], "peak_bytes": peak}


def _peak(work: Work) -> int:
    """Bytes that numpy and Python hold at most while the work runs."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _microseconds(seconds: dict[str, list[float]], steps: int) -> dict[str, float]:
    """Median microseconds a step, by work."""
    return {
        f"{name}_us": round(1e6 * statistics.median(taken) / steps, 2)
        for name, taken in seconds.items()
    }


SECTIONS: dict[str, Callable[[], list[Figure]]] = {
    "step_over_floor": step_over_floor,
    "step_over_oracle": step_over_oracle,
    "two_workers": two_workers,
    "gram_memory": gram_memory,
    "certified_rank": certified_rank,
    "perceptron_curvatures": perceptron_curvatures,
}


# ---- the record --------------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    """Processor, cores this process may use, and the BLAS threads in force."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.machine()}",
        "blas": _blas(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(
            line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def _blas() -> list[dict[str, Any]]:
    """Every BLAS loaded with its version, kernel and threads, where threadpoolctl can tell."""
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return []
    wanted = ("internal_api", "version", "architecture", "num_threads")
    return [{key: pool.get(key) for key in wanted} for pool in threadpool_info()]


def document(measured: dict[str, list[Figure]]) -> dict[str, Any]:
    """What data/bench.json holds; `summary` is what the README quotes."""
    return {
        "machine": machine(),
        "versions": records.versions(),
        "chains": CHAINS,
        "rounds": ROUNDS,
        "sections": {
            name: [{**figure._asdict(), "kept": figure.kept} for figure in figures]
            for name, figures in measured.items()
        },
        "summary": [_summary(figure) for figures in measured.values() for figure in figures],
    }


def _summary(figure: Figure) -> dict[str, Any]:
    limit = f"{'≤' if figure.at_most else '≥'} {figure.limit:g}"
    return {"what": figure.what, "measured": f"{figure.ratio:.2f}", "limit": limit}


def measure(names: list[str]) -> dict[str, list[Figure]]:
    """Run sections by name, telling each figure on stderr as it comes."""
    measured = {}
    for count, name in enumerate(names, start=1):
        console.say(f"{name} ({count} of {len(names)})")
        measured[name] = SECTIONS[name]()
        for figure in measured[name]:
            row = _summary(figure)
            verdict = "" if figure.kept else "  MISSED"
            console.say(f"  {row['what']}: {row['measured']} (limit {row['limit']}){verdict}")
    return measured


def main(arguments: list[str] | None = None) -> int:
    """Measure and record; exit status 1 when a limit is missed, after the record is written."""
    parser = console.Arguments(description="Speed and memory as ratios within one run.")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.sections if name not in SECTIONS]
    if unknown:
        raise ValueError(f"unknown section {unknown[0]}; choose from {', '.join(SECTIONS)}")
    measured = measure(chosen.sections or list(SECTIONS))
    found = document(measured)
    if chosen.sections:
        print(records.to_json(found), end="")
    else:
        records.write_json(OUTPUT, found)
    kept = all(figure.kept for figures in measured.values() for figure in figures)
    return 0 if kept else console.FAILED


if __name__ == "__main__":
    sys.exit(console.run(main, debug="--debug" in sys.argv))
