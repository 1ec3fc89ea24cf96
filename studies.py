"""Studies that sample grokked networks: `python run_llc.py --study NAME [--workers N]`.

    name            what it measures                                      minutes on 2 cores
    verdict         18 grokked networks at the frozen settings -> llc.csv, data/traces     8
    source-settings the same networks at the source's settings -> source_settings.csv      8
    too-wide        15 networks past the width limit p(n−1)                                1
    memorising      first layer frozen at random: λ = p·rank/2, exact                      3
    sensitivity     one setting changed at a time, lowest seed of each size                6
    grid-selection  the 16 settings of the calibration grid, on the same networks          3
    settling        2 chains × 40,000 steps in 5 blocks; needs the two tables above        3
    polish          two polishes of the same trained weights                               3
    trajectory      one network that memorises first and groks much later                  3
    convergence     networks trained on and on under weight decay                          4
All but memorising, polish, trajectory and convergence need `networks` of spectra.py first.

too-wide, sensitivity, settling and polish are made at the source's settings: the claims they answer
were. `gate` keeps the order: without frozen settings none of them starts. Every row carries its
settings, the hash of the calibration, and "not calibrated" where they are not the frozen ones.

Symbols: λ̂ reading, w* polished weights, h curvatures, c = gamma/n_beta the resolution, ε step,
r rank, D weights minus exact symmetry directions, K_eff neurons in use.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import curvature
import gate
import jobs
import measure
import networks
import records
import sgld
import tables
import theory
import train
from chains import Model
from jobs import Job, Row, Setup, Study
from measure import Curvature, Protocol
from networks import Size
from qnet import FrozenFirstLayer, QuadraticNetwork

Array = NDArray[np.float64]

PAPER_RESOLUTION = 5.0 / 26.4  # gamma / n_beta of Cullen et al. 2026 (claim C03)
SETTLES = 0.05  # the last fifth against the reading of 10,000 steps
CHANGES: tuple[dict[str, float], ...] = (
    {"n_beta": 1e3},
    {"n_beta": 1e5},
    {"gamma": 0.1},
    {"gamma": 10.0},
    {"step_constant": 0.05},
    {"step_constant": 0.1},
    {"step_constant": 0.4},
)
GRID_LENGTH = {"chains": 2, "steps": 4_000, "burn_in": 1_000}  # as in calibrate.py
GRID: tuple[dict[str, float], ...] = tuple(
    {"step_constant": s, "gamma": gamma, "n_beta": n_beta}
    for s, gamma, n_beta in itertools.product((0.2, 0.5), (1.0, 10.0), (1e3, 3e3, 1e4, 3e4))
)
SOURCE = Protocol()  # the settings of every reading of Lab Agents 2026, to compare like with like
LONG = {"chains": 2, "steps": 40_000}
FIRST_LAYER_SCALE = 1.0  # of the frozen random first layer, as in the calibration
POLISHED = networks.VERDICT[:5]  # up to p = 23
DELAYED, DELAYED_RECIPE = Size(17, 68, 0.6), train.Recipe(initial_scale=0.5)
DRIFTING = networks.VERDICT[:2]
STOPS = tuple(round(t) for t in np.geomspace(300, 20_000, 8))
# Last words of the chains' SeedSequence, which tell the studies' chains apart.
MEMORISING, SETTLING, POLISHING, TRAJECTORY, CONVERGENCE = 1, 2, 3, 4, 5


# ---- settings ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ask:
    """Settings to sample at, and the calibration they were compared with."""

    protocol: Protocol
    status: str
    calibration_sha256: str


def ask(setup: Setup, at: Protocol | None = None, **changes: Any) -> Ask:
    """The frozen settings, or those of `at`, with some changed.

    "not calibrated" when they then differ from the frozen ones. Raises gate.GateClosed when nothing
    is frozen, or the sampler's code has passed no calibration.
    """
    frozen = Protocol(**gate.read_frozen(setup.data).settings)
    gate.admit(asdict(frozen), data=setup.data)
    changed = dataclasses.replace(at or frozen, **changes)
    changed.check()
    mark = gate.admit(asdict(changed), not_calibrated=True, data=setup.data)
    return Ask(changed, **mark)


def seconds(row: Row, asked: Ask, spectra: float = 0.0) -> float:
    """Estimate for one job: chains, and so many spectra."""
    chain_steps = asked.protocol.chains * asked.protocol.steps
    sampling = networks.seconds_to_sample(row, chain_steps)
    return sampling + spectra * networks.seconds_to_decompose(row)


# ---- one reading -------------------------------------------------------------------------------


def sampled(
    model: Model, w: Array, found: Curvature, asked: Ask, seed: tuple[int, ...]
) -> tuple[Row, sgld.Sample]:
    """The SETTINGS, LAW and READING columns (`tables.py`), and the chains they were read from."""
    protocol, started = asked.protocol, time.perf_counter()
    run = measure.sample(model, w, found, protocol, seed=seed)
    elapsed = time.perf_counter() - started
    record = measure.reading_record(run, protocol)
    predicted = measure.predict(model, w, found, protocol)
    row = {
        **settings(found, asked, seed),
        **law(found, protocol, predicted),
        **record,
        "z_law": measure.deviation(run, predicted),
        "doubts": " | ".join(run.doubts),
        "r_hat": record["split_r_hat"],
        "mala": record["mala_acceptance"],
        "seconds_sampling": elapsed,
    }
    return row, run


def settings(found: Curvature, asked: Ask, seed: tuple[int, ...]) -> Row:
    """The SETTINGS columns."""
    return {
        **asdict(asked.protocol),
        "resolution": asked.protocol.resolution,
        "kappa": found.h_max / asked.protocol.resolution,
        "step": asked.protocol.step(found.h_max),
        "chains_seed": " ".join(map(str, seed)),
        "status": asked.status,
        "calibration_sha256": asked.calibration_sha256,
    }


def law(found: Curvature, protocol: Protocol, predicted: measure.Prediction) -> Row:
    """The LAW columns but z_law: what the spectrum at w predicts."""
    assert found.h is not None and found.rank is not None
    return {
        "flat_share": curvature.flat_share(found.h, found.rank, protocol.resolution),
        "effective_dimension": predicted.effective_dimension,
        "law": predicted.expected_llc,
        "law_sd": predicted.standard_deviation,
        "law_stationary": stationary(found.h, protocol, protocol.step(found.h_max)),
        "settled_share": predicted.settled_share,
    }


def stationary(h: Array, protocol: Protocol, step: float) -> float:
    """What endless chains read on a quadratic loss with curvatures h, at this ε."""
    return theory.sgld_stationary_llc(h, n_beta=protocol.n_beta, gamma=protocol.gamma, step=step)


def compared(net: QuadraticNetwork, w: Array, found: Curvature, resolution: float) -> Row:
    """What a reading at w is compared with: the SPECTRUM and FORMULAS columns."""
    record = measure.curvature_record(net, w, found, resolution)
    paper = {"paper_settings_reading": paper_settings_reading(found)}
    return networks.spectrum(record) | networks.formulas(net, w) | paper


def ratios(row: Row) -> Row:
    """The RATIOS columns of a row that has λ̂ and what it is compared with."""
    against = {
        "ratio_paper": "formula_paper",
        "ratio_paper_in_use": "formula_paper_in_use",
        "ratio_generic": "formula_generic",
        "ratio_half_rank": "half_rank",
        "ratio_law": "law",
    }
    return {name: row["llc"] / row[of] if row[of] else None for name, of in against.items()}


def paper_settings_reading(found: Curvature) -> float:
    """½Σh/(h+c) at the resolution of the paper's own estimates."""
    assert found.h is not None
    return theory.effective_dimension(found.h, PAPER_RESOLUTION)


def case(row: Row, *words: int) -> tuple[int, ...]:
    """The seed of a network's chains: p, K, its own seed, and what tells the study apart."""
    return (row["p"], row["K"], row["seed"], *words)


@dataclass(frozen=True)
class Point:
    """A network of data/ with its spectrum."""

    net: QuadraticNetwork
    w: Array
    found: Curvature


def shipped(data: Path, name: str) -> Point:
    """Checkpoint and spectrum of a network of data/. Raises records.RecordError."""
    checkpoint = records.read_checkpoint(networks.checkpoint_path(data, name))
    net, w = networks.opened(checkpoint)
    path = networks.spectrum_path(data, name)
    return Point(net, w, measure.read_spectrum(path, net, checkpoint.content_hash()))


# ---- verdict, too-wide -------------------------------------------------------------------------


def study_verdict(setup: Setup) -> list[Row]:
    """The grokked networks at the frozen settings."""
    asked = ask(setup)
    return _readings(setup, "verdict", "llc", networks.VERDICT, asked, travelled_work)


def study_source_settings(setup: Setup) -> list[Row]:
    """The same networks at the source's settings; where the chains end is asked by `verdict`."""
    asked = ask(setup, SOURCE)
    return _readings(
        setup, "source-settings", "source_settings", networks.VERDICT, asked, reading_work
    )


def study_too_wide(setup: Setup) -> list[Row]:
    """The networks past the width limit at the source's settings."""
    asked = ask(setup, SOURCE)
    return _readings(setup, "too-wide", "too_wide", networks.TOO_WIDE, asked, reading_work)


def _readings(
    setup: Setup,
    study: str,
    table: str,
    sizes: tuple[Size, ...],
    asked: Ask,
    work: Callable[..., list[Row]],
) -> list[Row]:
    todo = [
        Job(
            row["network"],
            (row["network"], case(row), asked, setup.data / "traces" / table, setup.data),
            row,
            seconds(row, asked, spectra=0.3),
        )
        for row in networks.made(setup.data, sizes)
    ]
    return jobs.finish(setup, study, table, work, todo)


def reading_work(
    name: str, seed: tuple[int, ...], asked: Ask, traces: Path, data: Path
) -> list[Row]:
    """λ̂ of one network of data/ beside all it is compared with; its traces are kept."""
    return [_reading(shipped(data, name), name, seed, asked, traces)[0]]


def travelled_work(
    name: str, seed: tuple[int, ...], asked: Ask, traces: Path, data: Path
) -> list[Row]:
    """The same, and what the spectrum predicts where the chains end."""
    at = shipped(data, name)
    row, run = _reading(at, name, seed, asked, traces)
    return [row | ends(at, run, asked.protocol)]


def _reading(
    at: Point, name: str, seed: tuple[int, ...], asked: Ask, traces: Path
) -> tuple[Row, sgld.Sample]:
    row, run = sampled(at.net, at.w, at.found, asked, seed)
    arrays = {"losses": run.traces, "distances": run.distances}
    records.write_npz(traces / f"{name}.npz", arrays)
    row |= compared(at.net, at.w, at.found, asked.protocol.resolution)
    return row | ratios(row), run


def ends(at: Point, run: sgld.Sample, protocol: Protocol) -> Row:
    """The ENDS columns: what the spectrum predicts at the place the first chain went to.

    A spring of fixed gamma is no ball: chains leave w* along flat directions, by about 1/√gamma in
    each, and read the place they reach. The end point is polished to zero loss and decomposed by
    the Gram route, exact enough here: its error in h is 1e-15·h_max, far below the resolution, and
    no rank is read from it.
    """
    polished = train.polish_adam(at.net, run.end_points[0])
    found = measure.read_curvature(at.net, polished.w, "gram")
    assert found.h is not None
    law_there = stationary(found.h, protocol, run.settings.step)
    return {
        "end_distance": float(np.linalg.norm(polished.w - at.w)),
        "end_polish_moved": polished.moved,
        "end_loss": polished.loss,
        "end_K_eff": at.net.effective_neurons(polished.w),
        "end_effective_dimension": theory.effective_dimension(found.h, protocol.resolution),
        "end_law": law_there,
        "z_end": (run.llc - law_there) / run.standard_error,
    }


# ---- memorising --------------------------------------------------------------------------------


def study_memorising(setup: Setup) -> list[Row]:
    """Output weights alone, on a random first layer: the loss is quadratic and λ = p·rank/2."""
    asked = ask(setup)
    chosen = [*networks.each(networks.VERDICT), *networks.each(networks.TOO_WIDE, networks.LOWEST)]
    todo = []
    for size, seed in chosen:
        row = networks.identified(size, seed)
        todo.append(Job(row["network"], (size, seed, asked), row, seconds(row, asked)))
    return jobs.finish(setup, "memorising", "memorising", memorising_work, todo)


def memorising_work(size: Size, seed: int, asked: Ask) -> list[Row]:
    """λ̂ at the least-squares output weights of one random first layer."""
    net = size.network(seed)
    w = net.initial_weights(seed, FIRST_LAYER_SCALE)
    model = net.frozen(w)
    solution = np.linalg.lstsq(model.features, net.targets - net.targets.mean(axis=0))[0]
    found = lazy_curvature(model)
    assert found.h is not None and found.rank is not None
    row, _ = sampled(model, solution.T.ravel(), found, asked, (size.p, size.K, seed, MEMORISING))
    known_llc = theory.frozen_first_layer(found.rank // net.p, net.p)
    hidden = np.linalg.matrix_rank(hidden_activations(net, w))
    return [
        row
        | {
            "feature_rank": found.rank // net.p,
            "known_llc": known_llc,
            "formula_lazy": 0.5 * net.p * min(int(hidden), net.K),
            "loss": float(model.loss(solution.T.ravel())),
            "h_max": found.h_max,
            "h_min": float(found.h[found.rank - 1]),
            "ratio_known": row["llc"] / known_llc,
        }
    ]


def lazy_curvature(model: FrozenFirstLayer) -> Curvature:
    """The spectrum of J = (CF) ⊗ I_p from the features alone: every s occurs p times."""
    s = curvature.singular_values(model.features)
    repeated = np.repeat(np.asarray(s), model.p)
    shape = (model.n * model.p, model.n_params)
    return measure.interpret(model, curvature.SingularValues(repeated, s.route, shape))


def hidden_activations(net: QuadraticNetwork, w: Array) -> Array:
    """z² (n, K), not centred."""
    u, v, _ = net.unpack(w)
    z = net.inputs @ np.hstack([u, v]).T
    return np.asarray(z * z)


# ---- sensitivity, grid-selection ---------------------------------------------------------------


def study_sensitivity(setup: Setup) -> list[Row]:
    """One of the source's settings changed at a time, the chains' own noise kept the same."""
    return _changed(setup, "sensitivity", "sensitivity", CHANGES, {})


def study_grid_selection(setup: Setup) -> list[Row]:
    """The settings and the length of the calibration grid."""
    return _changed(setup, "grid-selection", "grid_selection", GRID, GRID_LENGTH)


def _changed(
    setup: Setup,
    study: str,
    table: str,
    changes: tuple[dict[str, float], ...],
    length: dict[str, int],
) -> list[Row]:
    todo = []
    for row, change in itertools.product(
        networks.made(setup.data, networks.VERDICT, networks.LOWEST), changes
    ):
        asked = ask(setup, SOURCE, **change, **length)
        words = " ".join(f"{name}={value:g}" for name, value in change.items())
        key = f"{row['network']}_{words.replace(' ', '_')}"
        arguments = (row["network"], case(row), asked, setup.data)
        todo.append(Job(key, arguments, row | {"changed": words}, seconds(row, asked)))
    return jobs.finish(setup, study, table, setting_work, todo)


def setting_work(name: str, seed: tuple[int, ...], asked: Ask, data: Path) -> list[Row]:
    """λ̂ of one network of data/ at other settings."""
    at = shipped(data, name)
    row, _ = sampled(at.net, at.w, at.found, asked, seed)
    row |= compared(at.net, at.w, at.found, asked.protocol.resolution)
    return [row | ratios(row)]


# ---- settling ----------------------------------------------------------------------------------


def study_settling(setup: Setup) -> list[Row]:
    """Long chains against the readings of 10,000 steps, all at the source's settings."""
    asked = ask(setup, SOURCE, **LONG)
    todo = []
    for table, sizes in (("source_settings", networks.VERDICT), ("too_wide", networks.TOO_WIDE)):
        short = short_readings(setup.data, table)
        for row in networks.made(setup.data, sizes, networks.LOWEST):
            name = row["network"]
            arguments = (name, case(row, SETTLING), asked, short.get(name), setup.data)
            todo.append(Job(name, arguments, row, seconds(row, asked)))
    return jobs.finish(setup, "settling", "settling", settling_work, todo)


def short_readings(data: Path, table: str) -> dict[str, float | None]:
    """network -> λ̂ of a table. Raises ValueError when the table is not there."""
    path = data / f"{table}.csv"
    if not path.exists():
        raise ValueError(
            f"{path} is missing: run `--study source-settings` and `--study too-wide` first"
        )
    return {row["network"]: row["llc"] for row in records.read_csv(path, tables.types(table))}


def settling_work(
    name: str, seed: tuple[int, ...], asked: Ask, short: float | None, data: Path
) -> list[Row]:
    """One long reading in fifths, each beside what the exact law expects of the last."""
    at, protocol = shipped(data, name), asked.protocol
    assert at.found.h is not None
    row, run = sampled(at.net, at.w, at.found, asked, seed)
    blocks = [float(block) for block in run.reading.block_means]
    kept = protocol.steps - protocol.burn_in
    last = blocks[-1] / short - 1.0 if short else None
    row |= {f"block_{k}": block for k, block in enumerate(blocks, start=1)}
    row |= {
        "law_last_block": theory.sgld_expected_llc(
            at.found.h,
            n_beta=protocol.n_beta,
            gamma=protocol.gamma,
            step=run.settings.step,
            steps=protocol.steps,
            burn_in=protocol.steps - kept // len(blocks),
        ),
        "reading_10000": short,
        "last_against_10000": last,
        "settles": None if last is None else abs(last) <= SETTLES,
    }
    return [row]


# ---- polish ------------------------------------------------------------------------------------


def study_polish(setup: Setup) -> list[Row]:
    """Adam and L-BFGS from the same trained weights, lowest seed of each size up to p = 23."""
    asked = ask(setup, SOURCE)
    todo = []
    for size, seed in networks.each(POLISHED, networks.LOWEST):
        row = networks.identified(size, seed)
        arguments = (size, seed, asked)
        todo.append(Job(row["network"], arguments, row, 2.0 * seconds(row, asked, spectra=1.0)))
    return jobs.finish(setup, "polish", "polish", polish_work, todo)


def polish_work(size: Size, seed: int, asked: Ask) -> list[Row]:
    """λ̂ of the same network after either polish."""
    net = size.network(seed)
    trained = train.train(net, train.Recipe(), seed=seed)
    polishes = {
        "adam": train.polish_adam(net, trained.w),
        "lbfgs": train.polish_lbfgs(net, trained.w),
    }
    adam = polishes["adam"].w
    apart = float(np.linalg.norm(adam - polishes["lbfgs"].w) / np.linalg.norm(adam))
    rows = []
    for name, polished in polishes.items():
        checkpoint = networks.as_checkpoint(
            net, polished, fraction=size.fraction, seed=seed, training=trained.steps, polish=name
        )
        row = unshipped(net, polished.w, asked, (size.p, size.K, seed, POLISHING))
        rows.append(row | networks.trained(checkpoint) | {"between_polishes": apart})
    return rows


def unshipped(net: QuadraticNetwork, w: Array, asked: Ask, seed: tuple[int, ...]) -> Row:
    """Spectrum and λ̂ at weights that are not in data/; a dead chain leaves the rest standing."""
    found = measure.read_curvature(net, w)
    row = compared(net, w, found, asked.protocol.resolution)
    try:
        row |= sampled(net, w, found, asked, seed)[0]
    except jobs.FAILURES as error:
        predicted = measure.predict(net, w, found, asked.protocol)
        row |= settings(found, asked, seed) | law(found, asked.protocol, predicted)
        return row | {"error": jobs.words(error)}
    return row | ratios(row)


# ---- trajectory --------------------------------------------------------------------------------


def study_trajectory(setup: Setup) -> list[Row]:
    """One training run looked at while it memorises and, much later, groks."""
    asked, seed = ask(setup), networks.LOWEST[0]
    base = networks.identified(DELAYED, seed)
    trained = train.train(DELAYED.network(seed), DELAYED_RECIPE, seed=seed)
    todo = [
        Job(
            f"{base['network']}_{step}",
            (DELAYED, seed, step, asked),
            base | {"training_steps": step},
            seconds(base, asked, spectra=1.0),
        )
        for step in looks(trained.grokked_at)
    ]
    return jobs.finish(setup, "trajectory", "trajectory", trajectory_work, todo)


def looks(grokked_at: int) -> tuple[int, ...]:
    """Steps at which to look: log-spaced until four times the grok, denser just before it."""
    wide = np.geomspace(max(1, grokked_at / 64), 4 * grokked_at, 13)
    dense = np.linspace(grokked_at / 4, 1.1 * grokked_at, 9)
    return tuple(sorted({0, *(round(float(t)) for t in (*wide, *dense))}))


def trajectory_work(size: Size, seed: int, step: int, asked: Ask) -> list[Row]:
    """Everything at one step. The loss is not zero there: λ̂ may be negative, its doubts say so."""
    net = size.network(seed)
    w = networks.snapshots(net, DELAYED_RECIPE, seed=seed, at=[step])[0]
    train_accuracy, held_out = net.accuracy(w)
    row = unshipped(net, w, asked, (size.p, size.K, seed, step, TRAJECTORY))
    return [
        row
        | {
            "loss": float(net.loss(w)),
            "train_accuracy": train_accuracy,
            "held_out_accuracy": held_out,
            "weight_norm": float(np.linalg.norm(w)),
            "K_eff": net.effective_neurons(w),
        }
    ]


# ---- convergence -------------------------------------------------------------------------------


def study_convergence(setup: Setup) -> list[Row]:
    """Networks trained on and on under weight decay, polished without it at every stop."""
    asked = ask(setup)
    todo = []
    for size, seed in networks.each(DRIFTING):
        base = networks.identified(size, seed)
        for step in STOPS:
            key, row = f"{base['network']}_{step}", base | {"training_steps": step}
            cost = seconds(row, asked, spectra=1.0)
            todo.append(Job(key, (size, seed, step, asked), row, cost))
    return jobs.finish(setup, "convergence", "convergence", convergence_work, todo)


def convergence_work(size: Size, seed: int, step: int, asked: Ask) -> list[Row]:
    """One stop: what decay has left, its two ranks, the bracket, and λ̂."""
    net = size.network(seed)
    before = networks.snapshots(net, train.Recipe(), seed=seed, at=[step])[0]
    polished = train.polish_adam(net, before)
    checkpoint = networks.as_checkpoint(
        net, polished, fraction=size.fraction, seed=seed, training=step
    )
    w = polished.w
    row = unshipped(net, w, asked, (size.p, size.K, seed, step, CONVERGENCE))
    row |= networks.trained(checkpoint) | networks.exact(net, w)
    low, high = row["bracket_low"], row["bracket_high"]
    return [
        row
        | {
            "loss_before_polish": float(net.loss(before)),
            "K_eff_before_polish": net.effective_neurons(before),
            "held_out_before_polish": net.accuracy(before)[1],
            "formula_inside": low <= row["formula_paper"] <= high,
            "formula_in_use_inside": low <= row["formula_paper_in_use"] <= high,
        }
    ]


STUDIES = {
    "verdict": Study("llc", study_verdict),
    "source-settings": Study("source_settings", study_source_settings),
    "too-wide": Study("too_wide", study_too_wide),
    "memorising": Study("memorising", study_memorising),
    "sensitivity": Study("sensitivity", study_sensitivity),
    "grid-selection": Study("grid_selection", study_grid_selection),
    "settling": Study("settling", study_settling),
    "polish": Study("polish", study_polish),
    "trajectory": Study("trajectory", study_trajectory),
    "convergence": Study("convergence", study_convergence),
}
