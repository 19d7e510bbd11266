"""The models that devices train: linear ones in numpy, networks in torch."""
