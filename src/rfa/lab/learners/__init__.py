"""The models that devices train: linear models and the LSTM by hand, networks in torch."""
