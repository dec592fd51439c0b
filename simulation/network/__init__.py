"""The network between simulated machines: transports, wires, bandwidth, faults of links."""
