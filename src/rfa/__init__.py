"""rfa: robust and private aggregation for federated learning."""
