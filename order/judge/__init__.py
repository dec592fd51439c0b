"""The judge: the rules of order, applied to the records of one queue and to all queues together."""
