"""The lab on Flower: any experiment's devices on the nodes of a federation.

A run is that of the lab: the same settings, seed, cohorts, results and store. Just the training of
the devices and the sums over them are elsewhere. Each device of the population lives on a node,
several on one where there are fewer nodes; every node needs rfa and the task's data.
"""
