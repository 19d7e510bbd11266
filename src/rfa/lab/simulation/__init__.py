"""Federated training in the lab: Algorithms 1 and 4, local training, corruption, and the rounds."""
