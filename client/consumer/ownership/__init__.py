"""Which queues a consumer owns: rebalance, locks, resets."""
