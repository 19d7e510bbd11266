"""The lab on Flower: any experiment's devices on the nodes of a federation.

A run has the same settings, seed, cohorts, results and store as in the lab. Only the training of
devices and the sums over them take place elsewhere. Each device of the population is on a node, and
several share one if there are fewer nodes. Every node needs rfa and the data of the task.
"""
