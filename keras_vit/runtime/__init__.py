"""Where the package runs: environment, devices, signals, workarounds."""
