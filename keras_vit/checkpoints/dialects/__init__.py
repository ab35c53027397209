"""The publishers of weights, one module each."""
