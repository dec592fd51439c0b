"""`lockstep console`: pages that show a live cluster. A process that asks brokers as any administrator's tool does."""
