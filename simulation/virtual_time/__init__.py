"""Virtual time: the event loop whose clock jumps to the next timer, its tasks, and the guard against real time."""
