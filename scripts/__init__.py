"""Programs for people, run from the root of the repository.

- `python -m scripts.demo`: a year of flights in order, through a killed consumer (`make demo`).
- `python -m scripts.pipeline`: the same through Spark, with an audit and a report (`make pipeline`).
- `python -m scripts.bench`: measurements beside a plain echo (`make bench`).
- `python -m scripts.hostile`: attacks of hostile peers (`make hostile`).
- `python -m scripts.flights FILE`: the events of the flights, counted.
- `scripts/interop/`: sets up clients of other languages, and has the programs that drive them (`make interop`).
"""
