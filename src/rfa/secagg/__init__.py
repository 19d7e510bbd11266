"""The secure sum: masked sums over devices, of which the server learns the total and no more."""
