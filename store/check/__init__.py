"""Reads a store from outside and says whether it is whole: `lockstep store`."""
