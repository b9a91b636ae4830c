from __future__ import annotations

from hypothesis import HealthCheck, settings

# By default, one example that takes 0.2 s fails its test, and so do examples that are slow to generate. A busy machine
# can stop a process for that long.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
