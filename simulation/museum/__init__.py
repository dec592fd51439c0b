"""Real bugs of ordered consumption, as variants of our client and broker that the sweep finds again."""
