"""The story of one seed, for people: its settings, then faults, log events and violations in the order of time."""

from dataclasses import fields

from lockstep.simulation.lab.outcome import LockMode, Replay

__all__ = ["story_of"]


def story_of(done: Replay, mode: LockMode, *, everything: bool = False) -> list[str]:
    """Lines of text.

    Args:
        everything: also log events of level debug.
    """
    plan, world = done.plan, done.world
    lines = [f"seed {plan.seed} in {mode} mode, hash {done.trace_hash[:16]}"]
    lines += [
        f"  {field.name}: {getattr(plan, field.name)}"
        for field in fields(plan)
        if field.name not in ("sends", "events")
    ]
    if world is not None:
        moments = [
            (event.at_ms, 0, f"FAULT  {event.fault} {event.member} {event.duration_ms} ms") for event in plan.events
        ]
        moments += [(at_ms, 1, f"  {count} messages") for at_ms, count in plan.sends]
        moments += [
            (line.at_ms, 2, f"    {line.host}: {line.event} {' '.join(f'{k}={v}' for k, v in line.fields.items())}")
            for line in world.cluster.log
            if everything or line.level != "debug"
        ]
        moments += [(found.at_ms, 3, f"WRONG  {found.kind}: {found.text}") for found in world.findings.wrong]
        lines += [f"{at_ms / 1000:10.3f} s  {text}" for at_ms, _, text in sorted(moments, key=lambda one: one[:2])]
        lines += ["happened: " + ", ".join(f"{name} {n}" for name, n in sorted(world.findings.sometimes.items()))]
    if done.error is not None:
        lines.append(f"ERROR  {type(done.error).__name__}: {done.error}")
    return lines
