"""The lab from Python: runs, sweeps, and what comes of them."""
