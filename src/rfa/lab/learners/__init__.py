"""The models that devices train: linear ones and the LSTM by hand, networks in torch."""
