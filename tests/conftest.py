"""Settings for every test: one BLAS thread and repeatable property tests."""

from __future__ import annotations

import os

# Before numpy is imported: the last bits of a matrix product change with the number of threads.
for _variable in (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
):
    os.environ[_variable] = "1"

from hypothesis import HealthCheck, settings  # noqa: E402

# derandomize: a red test stays red until somebody mends it. No deadline: the machine may be busy.
settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("repeatable")
