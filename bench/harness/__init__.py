"""The parts of the bench: servers, load, measuring, scenarios, reports."""
