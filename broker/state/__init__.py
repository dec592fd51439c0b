"""What a broker knows: plain synchronous tables that take the time as an argument."""
