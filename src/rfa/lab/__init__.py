"""The lab: federated learning in one process, with attacks, sweeps and reports."""
