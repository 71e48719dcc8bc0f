"""The parts of the bench: servers, load generators, measurement, scenarios, reports."""
