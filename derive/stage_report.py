"""What `derive stage` and `derive placements` print: the stages of an iteration under a placement, as plain data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from derive import expr
from derive.building_blocks import EXPANSIONS, Blocks
from derive.convex import pruned
from derive.forms import Form, Max
from derive.measure import Question
from derive.period import period
from derive.placements import StageQuestion, depth_in_waves, stage_depth, stage_memory, stage_work
from derive.render.typeset import display, with_sequence
from graphs.errors import GraphError
from graphs.placements import Placement, placement, placements
from graphs.placements.presets import PRESETS, preset
from graphs.stages import Options, stage_graph
from graphs.stages.stage import ASSESSMENT, GENERATION, MODELS, STAGES, TRAINING
from graphs.symbols import size

#: names of options on the command line -> what they set
OPTIONS: dict[str, dict[str, Any]] = {
    "own-log-probabilities": {"log_probabilities_own_pass": True},
    "values-on-the-fly": {"values_own_pass": False},
    "joint-update": {"joint_update": True},
    "shared-prefill": {"share_prefill": True},
    "sequential-reward": {"sequential_reward": True},
    "epochs": {"epochs": size("n_ep")},
    "updates": {"updates": size("n_up")},
}
#: the same of options that change a model's pass: heads for the response and the position before it
OF_MODELS: dict[str, dict[str, Any]] = {"response-logits": {"rows": size("T") + 1}}


def question(
    algorithm: str,
    place: str | None = None,
    preset_name: str | None = None,
    chosen: Iterable[str] = (),
    expand: bool = False,
    staleness: int | None = None,
) -> StageQuestion:
    """The whole iteration of an algorithm under a placement or a preset; GraphError for names that do not exist."""
    chosen = list(chosen)
    if place is not None and preset_name is not None:
        raise GraphError(f"placement {place!r} and preset {preset_name!r} both say where models run; give one")
    options = Options()
    where = placement(place or "baseline")
    if preset_name is not None:
        found = preset(preset_name)
        options, where = found.options, found.placement
    if staleness is not None:
        if where.staleness is None:
            raise GraphError(f"placement {where.name} does not overlap iterations; leave the staleness out")
        where = replace(where, staleness=staleness)
    if where.shared and "critic" not in {n.role for n in stage_graph(algorithm, options).invocations}:
        raise GraphError(f"{algorithm} has no critic that an actor could share; choose another placement")
    for name in chosen:
        if name not in (*OPTIONS, *OF_MODELS):
            raise GraphError(f"no option is called {name!r}; choose from {', '.join((*OPTIONS, *OF_MODELS))}")
        if name in OF_MODELS and not expand:
            raise GraphError(f"option {name!r} changes a pass whose cost has but a name here; add --expand")
        options = replace(options, **OPTIONS.get(name, {}))
    for name in chosen:
        _refuse_idle(name, algorithm, replace(options, shared=where.shared))
    asked = replace(Question(), **{k: v for name in chosen for k, v in OF_MODELS.get(name, {}).items()})
    blocks = Blocks(frozenset(EXPANSIONS), asked) if expand else Blocks()
    return StageQuestion(algorithm, where, options=options, blocks=blocks)


def _refuse_idle(name: str, algorithm: str, options: Options) -> None:
    """An option must change what the algorithm runs."""
    without = replace(options, **{key: getattr(Options(), key) for key in OPTIONS.get(name, {})})
    if name in OPTIONS and stage_graph(algorithm, options) == stage_graph(algorithm, without):
        raise GraphError(f"option {name!r} changes nothing of {algorithm} here; leave it out")


def conventions(options: Options) -> list[str]:
    """What the figures rest on, in words."""
    passes = "a pass of their own" if options.log_probabilities_own_pass else "the logits they were sampled with"
    together = "in one update" if options.joint_update else "one after the other where they share a group"
    return [
        "models of a stage are in its memory, all others are offloaded",
        f"old log-probabilities come from {passes}",
        f"several models are trained {together}",
    ]


def in_waves(q: StageQuestion, waves: int) -> dict[str, Any]:
    """Depth of generation and assessment in so many parts, and of the iteration with its training after them."""
    if not any(n.stage == GENERATION for n in q.graph.invocations):
        raise GraphError(f"{q.graph.name} generates nothing that could go through in waves; leave them out")
    if q.placement.staleness is not None or (ASSESSMENT, TRAINING) not in q.placement.barriers:
        raise GraphError(f"placement {q.placement.name} trains while it samples, so waves have no end; leave them out")
    depth = depth_in_waves(q, Form.constant(waves))
    trained = stage_depth(replace(q, stage=TRAINING)).value
    whole = pruned(Max.of(*(a + b for a in depth.members for b in trained.members)), q.factors)
    return {"count": waves, "depth": shown(depth), "iteration": shown(whole)}


def stage_report(q: StageQuestion, waves: int | None = None) -> dict[str, Any]:
    """Work, depth and memory of every stage, and depth and period of the iteration, in text form."""
    stages = []
    for stage in STAGES:
        asked = replace(q, stage=stage)
        stages.append(
            {
                "stage": stage,
                "schemes": list(q.placement.schemes_of(stage)),
                "invocations": [n.name for n in q.graph.invocations if n.stage == stage],
                "work": shown(stage_work(asked).value),
                "depth": shown(stage_depth(asked).value),
                "memory": shown(stage_memory(asked).value),
            }
        )
    iteration = {"work": stage_work(q), "depth": stage_depth(q), "period": period(q), "memory": stage_memory(q)}
    out: dict[str, Any] = {
        "algorithm": q.graph.name,
        "placement": q.placement.name,
        "source": q.placement.source,
        "staleness": q.placement.staleness,
        "under": conventions(q.options),
        "stages": stages,
        "iteration": {name: shown(measured.value) for name, measured in iteration.items()},
    }
    if waves is not None:
        out["waves"] = in_waves(q, waves)
    return out


def shown(value: Form | Max) -> str:
    return expr.text(with_sequence(display(value)))


def report_text(data: dict[str, Any]) -> str:
    age = "" if data["staleness"] is None else f", staleness {data['staleness']}"
    lines = [f"{data['algorithm']}, {data['placement']}{age} ({data['source']})"]
    for row in data["stages"]:
        used = f" [{', '.join(row['schemes'])}]" if row["schemes"] else ""
        lines += ["", f"{row['stage']}{used}: {', '.join(row['invocations']) or 'nothing to run'}"]
        lines += [f"  {name:<7} {row[name]}" for name in ("work", "depth", "memory")]
    lines += ["", "Iteration", *(f"  {name:<7} {value}" for name, value in data["iteration"].items())]
    if "waves" in data:
        lines += ["", f"In {data['waves']['count']} waves", f"  generation and assessment  {data['waves']['depth']}"]
        lines.append(f"  iteration                  {data['waves']['iteration']}")
    lines += ["", "Under", *(f"  {line}" for line in data["under"])]
    return "\n".join(lines) + "\n"


# -- the list of placements -------------------------------------------------------------------------------------------
def placements_report() -> dict[str, Any]:
    """Every placement as declared, and the presets with the placement that each stands for."""
    named = [_declaration(p) for p in placements().values()]
    return {"placements": named, "presets": [_declaration(p.placement) for p in PRESETS.values()]}


def _declaration(p: Placement) -> dict[str, Any]:
    return {
        "name": p.name,
        "heading": p.heading,
        "groups": [{"name": g.name, "exclusive": g.exclusive} for g in p.groups],
        "mapping": {stage: {role: p.group(stage, role).name for role in MODELS} for stage in STAGES},
        "barriers": [list(pair) for pair in p.barriers],
        "schemes": {stage: list(names) for stage, names in p.schemes},
        "staleness": p.staleness,
        "shared_actor_critic": p.shared,
        "source": p.source,
    }


def placements_text(data: dict[str, Any]) -> str:
    lines = []
    for p in data["placements"]:
        groups = ", ".join(g["name"] + ("" if g["exclusive"] else " (concurrent)") for g in p["groups"])
        lines += [f"{p['name']:<20} groups {groups}", f"{'':<20} {p['source']}"]
    lines += ["", *(f"{'preset ' + p['name']:<24} {p['source']}" for p in data["presets"])]
    return "\n".join(lines) + "\n"
