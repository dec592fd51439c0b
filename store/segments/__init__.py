"""The log and the queues of entries as files of a fixed size, below the store that is made of them."""
