"""The one place where the stages are composed: name → model → example inputs → graph → profile. The
command line and the Python interface both come through here."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, KeysView, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from opgraph.analysis.cost.conventions import counted
from opgraph.inputs.base import Example, InputRequest
from opgraph.options import OPTIONS, Options
from opgraph.record.errors import InputError, MissingDependency, SourceError, TraceError, first_line
from opgraph.record.graph import Graph, Node
from opgraph.record.kinds import Mode
from opgraph.record.layout import Layout, Split
from opgraph.record.loading import is_saved_profile
from opgraph.record.profile import (
    GUESSED,
    Begun,
    Compiled,
    Pipeline,
    ProfileRecord,
    Sample,
    Tracing,
    World,
)
from opgraph.record.remarks import Remark, left_behind, no_effect
from opgraph.record.turns import turn
from opgraph.record.versions import installed
from opgraph.sources import resolve
from opgraph.sources.base import BuildOptions, Model
from opgraph.sources.code import modules_apart
from opgraph.version import __version__

if TYPE_CHECKING:
    from torch import nn

    from opgraph.tracing.base import Capture, CompileFlags, Outcome, Prepare, TraceOptions


P = ParamSpec("P")
R = TypeVar("R")


def as_it_was(function: Callable[P, R]) -> Callable[P, R]:
    """A function, the first of whose arguments is a model, after which the process is set as before: what a
    model's own code sets where it is imported, built and copied holds for its runs, and no longer."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        model: Any = args[0] if args else kwargs["model"]
        missing = MissingDependency("torch", "torch")
        if isinstance(model, str) and not is_saved_profile(model):
            from opgraph.sources.registry import required

            try:
                required(model)  # who is not known is told of before torch is imported
            except MissingDependency as error:
                missing = error  # which is told behind what else is wrong
        try:
            from opgraph.tracing.state.copies import ending
            from opgraph.tracing.state.process import put_back, uncheckpointed
            from opgraph.tracing.state.reach import unheard
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            try:
                return function(*args, **kwargs)  # without torch nothing is run
            except ModuleNotFoundError as error:
                raise missing if error.name == "torch" else error from None
        with uncheckpointed(), put_back(modules_apart(), unheard(), ending()):
            return function(*args, **kwargs)

    return called


def told(function: Callable[P, ProfileRecord]) -> Callable[P, ProfileRecord]:
    """A function whose profile says what all runs that it took have left behind; an error says so, too."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> ProfileRecord:
        with left_behind() as left:
            try:
                found = function(*args, **kwargs)
            except BaseException as error:
                said = getattr(error, "__notes__", ())
                with suppress(Exception):  # what a class makes of notes
                    for remark in left:
                        if remark not in said:
                            error.add_note(remark)
                raise
        more = [remark for remark in left if remark not in found.model.notes]
        return _noting(found, *more) if more else found

    return called


# Models that generate, on the way from a name to a trace: which head of a model does, and how long its
# inputs are for a prompt or a cache of a given length.

HEADS = ("causal-lm", "seq2seq-lm", "image-text-to-text", "speech-seq2seq", "multimodal-lm")
"""The heads of transformers models that generate, in the order in which they are tried."""


def with_generating_head(spec: Any, built: Model, options: Options) -> Model:
    """The same model with a head that generates, where it has none yet, `spec` is a name, and no head was
    asked for.

    Raises `InputError` when there is none.
    """
    from opgraph.tracing.modes.generation import generates, no_cache

    found = _with_head(spec, built, options, HEADS, generates)
    if found is None:
        raise no_cache(built.info.name)
    return found


TRAINED = ("masked-lm", *HEADS, "image-classification", "ctc", "audio-classification")
"""The heads that models are trained with, in the order in which they are tried."""


def with_trained_head(spec: Any, built: Model, options: Options) -> Model:
    """The same model with a head that has a loss, where it has none and `spec` is a name of transformers'
    without a head; as it is where there is none."""
    from opgraph.tracing.modes.loss import has_loss

    base = hasattr(built.module, "loss_type") and not has_loss(built.module)
    found = _with_head(spec, built, options, TRAINED, has_loss) if base else None
    if found is None or found is built:
        return built
    note = f"with the head of {type(found.module).__name__}, since the base model has no loss"
    return replace(found, info=found.info.noting(Remark("other-head", note)))


def _with_head(
    spec: Any, built: Model, options: Options, heads: Iterable[str], fits: Callable[..., bool]
) -> Model | None:
    """The same model with the first of these heads that it has and that fits, or as it is."""
    if fits(built.module):
        return built
    for head in heads if isinstance(spec, str) and options.head is None else ():
        try:
            other = resolve(spec, BuildOptions.of(replace(options, head=head)))
        except SourceError:
            continue
        if fits(other.module):
            return other
    return None


def request_for(model: Model, options: Options) -> InputRequest:
    """The sizes of the inputs: the context is the decoder's own where there is an encoder, too; there a
    prompt has one token, the one that the decoder starts with, unless it is given. A decoding step goes on
    with one token more."""
    from opgraph.tracing.modes.generation import encoder_decoder

    request = InputRequest.of(options)
    if options.mode == "decode":
        request = replace(request, new_tokens=1)
    length = options.context_len
    if encoder_decoder(model.module):
        if length is None and options.mode == "prefill":
            length = request.decoder_seq_len or 1
        option = "decoder_seq_len"
    else:
        option = "seq_len"
    if length is None:
        return request
    given = getattr(request, option)
    if given not in (None, length):
        raise InputError(f"the context has {length} tokens, and {option} says {given}",
                         hint="give one of them")  # fmt: skip
    return replace(request, **{option: length})  # type: ignore[arg-type]


@told
@as_it_was
def profiled(
    model: str | nn.Module | Model,
    inputs: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> ProfileRecord:
    """Trace a model once, by its name, as a module, or as one that is resolved already.

    A forward that raises still gives a record of what ran until then: `graph.failed` is the node where it
    stopped. Raises `SourceError`, `InputError` or `TraceError`.
    """
    asked = options or Options()
    if asked.world_size is not None:
        from opgraph.sources.ranks import ranks

        with ranks(asked.world_size, asked.rank or 0):
            found = profiled(model, inputs, kwargs, replace(asked, world_size=None, rank=None))
        if found.graph.failed or any(k.collective for n in found.graph.nodes for k in n.kernels):
            return found
        return _noting(found, no_effect("world_size", "nothing is exchanged between ranks"))
    if asked.laid_out:
        return _laid_out(model, inputs, kwargs, asked)
    built, example = prepared(model, inputs, kwargs, asked)
    from opgraph.sources.weightless import one_request
    from opgraph.tracing.state.meeting import waits_once

    with one_request(), waits_once():
        found = _profiled(built, example, asked, inputs is None and kwargs is None)
    return counted(found, asked.count)


def _profiled(model: Model, example: Example, asked: Options, made: bool) -> ProfileRecord:
    """The profile of a call with these inputs; where they were made here and do not fit, with others."""
    found = profile_model(model, example, asked)
    if made and asked.mode == "train" and not asked.shaped and _lone(found.graph.failed):
        request = replace(InputRequest.of(asked), batch_size=2)
        found = profile_model(model, _example(model, None, None, request), asked)
        found = _noting(
            found,
            Remark(
                "guessed-inputs",
                "a batch of 2: batch normalization does not train on a value alone",
            ),
        )
    if made and not (example.args or example.kwargs):
        found = _with_optional(model, found, asked)
    failed = found.graph.failed
    if failed is not None and made and not (found.untried and _lacks_values(failed)):
        if asked.sized:
            _blame_what_was_asked(model, found.graph, asked)
        found = _fitted(model, example, found, asked)
    return found


def _laid_out(
    model: str | nn.Module | Model, inputs: Any, kwargs: Mapping[str, Any] | None, asked: Options
) -> ProfileRecord:
    """The profile of one rank of those that the options lay the model out over."""
    from opgraph.analysis.parallel.sharding import (
        attends_causally,
        counted_by_code,
        is_turned,
        sharding,
    )
    from opgraph.sources.ranks import ranks
    from opgraph.tracing.modes.layouts import in_stages, laid_out, tokens_split
    from opgraph.tracing.modes.stages import kinds_of_ranks, of_a_sample
    from opgraph.tracing.state.copies import ending
    from opgraph.tracing.state.process import put_back

    layout, rank = asked.layout, asked.rank or 0
    alone: dict[str, Any] = dict.fromkeys(asked.laid_out)
    one = replace(asked, rank=None, **alone)
    if asked.global_batch is not None:
        one = one.of_batch(asked.global_batch // layout.copies // layout.micro_batches)
    one = replace(one, micro_batches=layout.micro_batches if layout.micro_batches > 1 else None)
    built = resolved(model, one)
    forward = replace(one, micro_batches=None, mode="infer", **_FORWARD)

    @cache
    def plain() -> Graph:
        return profiled(built, inputs, kwargs, forward).graph

    told = False

    def allowed() -> Split:
        graph = plain()
        found = sharding(graph)
        layers = [graph.node(n) for n in found.styles]
        return Split(
            {n.scope: found.styles[n.id] for n in layers},
            frozenset(n.scope for n in layers if is_turned(graph, n)),
            counted_by_code(graph, found),
            found.sizes,
            told,
        )

    def causal() -> bool:
        return attends_causally(plain())

    if layout.devices == 1:
        return profiled(built, inputs, kwargs, one)
    if layout.pipeline > 1:
        if one.mode != "train":
            raise InputError(
                "a pipeline is gone through in a step of training", hint="--mode train"
            )
        if inputs is None and kwargs is None:
            one = one.of_batch((one.batch or 1) * layout.micro_batches)
        one = replace(one, micro_batches=None)

    def traced(at: int, *, sample: bool = False) -> ProfileRecord:
        with put_back(ranks(layout.devices, at), ending()):
            return traced_here(sample)

    def traced_here(sample: bool) -> ProfileRecord:
        if layout.pipeline == layout.context == 1:
            return profiled(laid_out(built, layout, allowed), inputs, kwargs, one)
        example = prepared(built, inputs, kwargs, one)[1]
        with tokens_split(example, layout, causal) as mine:
            if layout.pipeline == 1:
                spread, passed = laid_out(built, layout, allowed), mine
            else:
                few, part = of_a_sample(layout, mine) if sample else (layout, mine)
                spread, passed = in_stages(built, part, few, allowed, one.loss)
            return counted(profile_model(spread, passed, one), one.count)

    found = traced(rank)
    if found.graph.failed is not None and layout.tensor > 1:
        told = True  # its code may compute with how many heads there are before it says so
        again = traced(rank)
        found = found if again.graph.failed is not None else again
    if found.graph.failed is not None:
        if layout.context > 1:
            _blame_the_run(found.graph, built.info.name, layout)
        raise InputError(
            f"{built.info.name} does not run as {layout}: {found.graph.failed.failure}",
            hint=("its own code may count what is split; " if layout.tensor > 1 else "")
            + "a saved profile of it (-o FILE.json) can be laid out on paper",
        )
    if found.pipeline is not None:
        kinds = kinds_of_ranks(built.module, layout)
        beside = layout.devices // layout.pipeline
        sampled = partial(traced, sample=True)
        found = _sampled(
            found, found.pipeline, kinds, lambda r: sampled(r * beside + rank % beside)
        )
    if not any(k.collective is not None for n in found.graph.nodes for k in n.kernels):
        found = _noting(found, no_effect(", ".join(asked.laid_out), "nothing is exchanged"))
    return replace(found, world=World(layout.devices, rank, layout))


_TILE = 32
"""Tokens for which the kernel of attention in float32 keeps its sums together
(`_scaled_dot_product_efficient_attention`: logsumexp is as long as a multiple of these)."""


def _blame_the_run(graph: Graph, name: str, layout: Layout) -> None:
    """Raise `InputError` where torch's ring stopped at attention over a rank's tokens that are no whole
    tiles."""
    given = graph.value[graph.inputs[0]].shape if graph.inputs else ()
    tokens = given[1] if len(given) > 1 else 0
    if graph.failed is None or "attention" not in graph.failed.op or not isinstance(tokens, int):
        return
    if tokens % _TILE:
        least = -(-tokens // _TILE) * _TILE * layout.context
        raise InputError(
            f"{name} does not run as {layout}: torch's ring goes over {tokens:,} tokens of a rank, and "
            f"attention in float32 over multiples of {_TILE}",
            hint=f"--seq-len {least}, or --dtype bfloat16",
        )


def _sampled(
    found: ProfileRecord, pipeline: Pipeline, kinds: Sequence[Any],
    traced: Callable[[int], ProfileRecord],
) -> ProfileRecord:  # fmt: skip
    """The profile of a rank of a pipeline with samples of the others: one of each of their `kinds`."""
    known = {kinds[pipeline.rank]: -1}
    samples: list[Sample] = []
    for rank, kind in enumerate(kinds):
        if kind not in known:
            known[kind] = len(samples)
            other = traced(rank)
            begun = () if other.pipeline is None else other.pipeline.begun
            samples.append(Sample(other.graph, begun))
    like = tuple(known[kind] for kind in kinds)
    return replace(found, pipeline=replace(pipeline, samples=tuple(samples), like=like))


_FORWARD: dict[str, Any] = {
    n: OPTIONS[n].default
    for n in (
        "optimizer",
        "loss",
        "train",
        "accumulation",
        "loss_scaling",
        "checkpointing",
        "checkpointing_policy",
    )
}
"""What makes a step of training a forward."""


def _fitted(
    model: Model, example: Example, found: ProfileRecord, options: Options
) -> ProfileRecord:
    """The profile with other inputs, where those that were guessed from the signature do not fit and others
    do; or the failed one: as it is where its only input was asked for, else with a remark on what was
    tried."""
    from opgraph.inputs.fitting import fitted
    from opgraph.tracing.eager import trace_either, trace_fakes
    from opgraph.tracing.fake.tensors import needs_values

    def run(other: Example) -> Graph | None:
        outcome = trace_fakes(model, other)[-1]
        if needs_values(outcome.error):
            outcome = trace_either(model, other, memory_limit=options.memory_limit)[-1]
        return None if outcome.error is None else outcome.graph or found.graph

    given = {name.partition(".")[0] for name in options.input_overrides}
    if len(example.args) + len(example.kwargs) == len(given) + (options.input_shape is not None):
        return found
    if not example.guessed or model.config is not None:
        return _noting(found, GUESSED)
    request = InputRequest.of(options)
    other, note = fitted(model, request, example, found.graph, run)
    if other is None:
        return _noting(found, GUESSED, note)
    return _noting(profile_model(model, other, options), note)


def _lacks_values(failed: Node) -> bool:
    """Whether a forward failed for want of values, so that other sizes would do no better."""
    from opgraph.tracing.fake.tensors import needs_values

    return needs_values(failed.error)


def _with_optional(model: Model, found: ProfileRecord, options: Options) -> ProfileRecord:
    """The profile with the arguments that may be left out, where none has to be given, and where the model
    fails without or reads more of its weights with them; else the one without."""
    request = replace(InputRequest.of(options), optional=True)
    example = _example(model, None, None, request)
    if not (example.args or example.kwargs):
        return found
    other = profile_model(model, example, options)
    if other.graph.failed is not None:
        other = _fitted(model, example, other, options)
    needed = found.graph.failed is not None
    more = needed or _weights_read(other) > _weights_read(found)
    if other.graph.failed is not None or not more:
        return found
    why = "it fails without those that may be left out" if needed else "none is needed"
    made = ", ".join(example.kwargs)
    return _noting(other, Remark("guessed-inputs", f"{why}, and these were made: {made}"))


def _weights_read(record: ProfileRecord) -> int:
    """How many tensors of weights the nodes of a profile read."""
    return len({p for n in record.graph.nodes for p in n.parameters})


def _lone(failed: Node | None) -> bool:
    """Whether a step of training failed at a batch norm that got one value of each channel."""
    return failed is not None and failed.op == "batch_norm" and _ALONE in (failed.error or "")


_ALONE = "Expected more than 1 value per channel"


def _blame_what_was_asked(model: Model, graph: Graph, options: Options) -> None:
    """Raise `InputError` when a forward that raised on the inputs asked for does not on the model's own:
    then it is their dtypes or sizes that are impossible, and not the model that is broken."""
    try:
        usual = profile_model(model, _example(model, None, None, InputRequest()), options).graph
    except (InputError, TraceError):
        return
    if usual.failed is not None or graph.failed is None:
        return
    takes, got = ({v.name: v for v in map(g.value.__getitem__, g.inputs)} for g in (usual, graph))
    others = {n: v.dtype for n, v in got.items() if n in takes and v.dtype != takes[n].dtype}
    for name, dtype in others.items():
        raise InputError(
            f"{name} is given as {dtype}, and {model.info.name} takes {takes[name].dtype}: "
            f"{graph.failed.failure}",
            hint=f"--input {name}={'x'.join(map(str, got[name].shape))}:{takes[name].dtype}",
        )
    fitting = ", ".join(f"{n} {'x'.join(map(str, v.shape))}" for n, v in takes.items())
    raise InputError(
        f"the sizes asked for do not fit {model.info.name}: {graph.failed.failure}",
        hint=f"it takes {fitting}",
    )


@turn()
def prepared(
    model: str | nn.Module | Model,
    inputs: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> tuple[Model, Example]:
    """A model that is built, and the arguments of one call of it (see `profiled`)."""
    options = options or Options()
    built = resolved(model, options)
    request = (
        request_for(built, options) if Mode(options.mode).generates else InputRequest.of(options)
    )
    return built, _example(built, inputs, kwargs, request)


def complete(profile: ProfileRecord) -> ProfileRecord:
    """A profile of all that there is to run. Raises `TraceError` where a forward or a step failed."""
    failed = profile.graph.failed
    if failed is None:
        return profile
    at = f" at {failed.file}:{failed.line}" if failed.file else ""
    raise TraceError(f"the {failed.part} of {profile.model.name} failed{at}: {profile.failure}")


@turn()
@told
def profile_model(
    model: Model,
    example: Example,
    options: Options | None = None,
    compile_flags: CompileFlags = "none",
) -> ProfileRecord:
    """Trace a model that is built already, with inputs that are made already; of the `options`, those
    count that say how it is run and traced. A plain run may raise the `compile_flags`
    of a tracer that compiles."""
    from opgraph.sources.pipelines import Pipelined
    from opgraph.tracing import plain_difference
    from opgraph.tracing import trace as attempts
    from opgraph.tracing.base import TraceOptions

    asked = options or _usual()
    how = TraceOptions(
        asked.concrete_args,
        asked.fullgraph,
        asked.warm_up,
        compile_flags,
        asked.memory_limit,
        asked.traced_for,
    )
    if isinstance(model.module, Pipelined) and asked.mode != "train":
        raise InputError("a pipeline is gone through in a step of training", hint="--mode train")
    if asked.mode != "infer":
        return _in_mode(model, example, asked, how)
    if asked.inductor:
        return _compiled(model, example, how, asked.inductor_autocast)
    cold = (
        attempts(model, example, asked.tracer, replace(how, warm_up=False)) if asked.warm_up else []
    )
    outcomes = attempts(model, example, asked.tracer, how)
    found = _profile_of(model, example, outcomes, asked.fragment)
    if cold and cold[-1].graph == outcomes[-1].graph:
        found = _noting(found, no_effect("warm_up", "the first run is like the second"))
    if asked.fullgraph and outcomes[-1].tracer != "dynamo":
        found = _noting(
            found, no_effect("fullgraph", f"the graph is that of {outcomes[-1].tracer}")
        )
    warm_up = asked.warm_up or asked.tracer == "hybrid"
    difference = plain_difference(model, example, outcomes[-1], warm_up=warm_up)
    return found if difference is None else _noting(found, difference)


@cache
def _usual() -> Options:
    return Options()


def _noting(found: ProfileRecord, *notes: str) -> ProfileRecord:
    return replace(found, model=found.model.noting(*notes))


def _compiled(
    model: Model, example: Example, how: TraceOptions, autocast: str | None,
    prepare: Prepare | None = None,
) -> ProfileRecord:  # fmt: skip
    """The profile of Dynamo's graph with the kernels of TorchInductor."""
    from opgraph.tracing.replay.inductor import trace_compiled

    outcomes, kernels = trace_compiled(model, example, how, autocast, prepare)
    return replace(_profile_of(model, example, outcomes, "all"), compiled=kernels)


def _in_mode(model: Model, example: Example, options: Options, how: TraceOptions) -> ProfileRecord:
    """The profile of another way of running a model than one forward."""
    from opgraph.tracing import eager
    from opgraph.tracing.modes import generation

    if options.mode == "train":
        return _trained(model, example, options, how)
    decode = partial(generation.decode, name=model.info.name)
    prepare = generation.prefill if options.mode == "prefill" else decode
    if options.inductor:
        profile = _compiled(model, example, how, options.inductor_autocast, prepare)
    else:
        outcomes = eager.trace_either(model, example, prepare=prepare, **how.run)
        profile = _profile_of(model, example, outcomes, "all")
    if profile.graph.failed is None and profile.cache is None:
        raise generation.no_cache(model.info.name)
    convention = {**profile.convention, **generation.conventions(model.module)}
    return replace(profile, mode=options.mode, convention=convention)


def _trained(model: Model, example: Example, options: Options, how: TraceOptions) -> ProfileRecord:
    """The profile of a step of training. Where a loss that was guessed fails, what the model returns is
    added up, which is said."""
    import torch

    from opgraph.sources.pipelines import Pipelined
    from opgraph.tracing import eager
    from opgraph.tracing.modes.training import Training, still_parts

    still = still_parts(model.module)
    how = replace(how, trains=True)
    example = replace(example, beside=options.called)
    make = partial(
        Training,
        options.optimizer,
        options.checkpointed,
        micro_batches=options.micro_batches or 1,
        loss_scaling=options.loss_scaling,
        still=still,
    )

    def run(step: Training) -> tuple[list[Outcome], Compiled | None]:
        if options.inductor:
            from opgraph.tracing.replay.inductor import trace_compiled

            def around(within: Capture) -> Capture:
                return partial(step, within=within)

            lower = options.inductor_autocast
            return trace_compiled(model, example, how, lower, step.prepare, around)

        def made_up() -> bool:
            return step.found is not None and step.found.guessed

        attempts = eager.trace_either(
            model, example, made_up, prepare=step.prepare, capture=step, **how.run
        )
        return attempts, None

    def traced(step: Training) -> tuple[list[Outcome], Compiled | None]:
        with torch.inference_mode(mode=False):  # a step needs gradients, whatever is on around it
            return run(step)

    step = make(options.loss, options.accumulation)
    outcomes, kernels = traced(step)
    says = "" if step.found is None else step.found.says
    error = None if outcomes[-1].too_large else outcomes[-1].error
    if error is not None and step.found is not None and step.found.guessed:
        summed = make("sum", options.accumulation)
        again, others = traced(summed)
        if again[-1].error is None and summed.found is not None:
            real = next((o.error for o in outcomes if o.tensors == "real" and o.error), None)
            why = first_line(error) + (f"; on real tensors: {first_line(real)}" if real else "")
            outcomes, kernels = outcomes + again, others
            says = f"{summed.found.says}, since {says} failed ({why})"
    profile = replace(_profile_of(model, example, outcomes, "all"), compiled=kernels)
    convention = {**profile.convention, "optimizer": options.optimizer, "loss": says}
    if options.train != "full":
        convention["train"] = options.train
    if options.accumulation:
        convention["gradients"] = "added to those of a step before"
    if options.loss_scaling:
        convention["loss scaling"] = "gradients divided by the loss's scale"
    if options.checkpointing:
        selective = options.checkpointing_policy == "selective"
        convention["checkpointing"] = "repeated blocks" + (
            " but for products, attention and collectives" * selective
        )
    if isinstance(model.module, Pipelined):
        nodes = profile.graph.nodes
        begun = tuple(Begun(a, nodes[at].name) for a, at in step.begun if at < len(nodes))
        pipeline = Pipeline(model.module.rank, model.module.orders, begun, batch=step.batch)
        profile = replace(profile, pipeline=pipeline)
    if still:
        profile = _noting(profile, _left_in_eval(still))
    return replace(
        profile
        if not options.guesses_loss
        else _noting(profile, Remark("loss", f"trained on {says}")),
        mode="train",
        convention=convention,
    )


def _left_in_eval(still: Iterable[str]) -> Remark:
    """That these parts stayed in eval mode, of which the outermost are named."""
    outer = [n for n in sorted(still) if not any(n.startswith(f"{o}.") for o in still)]
    names = ", ".join(outer[:_NAMED]) + ", …" * (len(outer) > _NAMED)
    return Remark("modes", f"in eval mode as they were given, the rest in training mode: {names}")


_NAMED = 3


def _profile_of(
    model: Model, example: Example, outcomes: list[Outcome], fragment: int | str
) -> ProfileRecord:
    from opgraph.analysis.cost.fragments import cut
    from opgraph.inputs.context import learned_positions
    from opgraph.sources.ranks import current

    last = outcomes[-1]
    if last.graph is None:
        reasons = "; ".join(f"{a.tracer} on {a.tensors} tensors: {a.error}" for a in
                            (o.attempt for o in outcomes))  # fmt: skip
        captures = last.tracer in ("fx", "dynamo", "export")
        raise TraceError(
            f"{model.info.name} cannot be traced: {reasons}",
            hint="--tracer auto records whatever Python the model runs" if captures else None,
        ) from last.error
    whole = ProfileRecord(
        graph=last.graph,
        model=replace(
            model.info,
            cls=model.info.cls or type(model.module).__qualname__,
            notes=(*model.info.notes, *example.notes, *last.notes),
        ),
        tracing=Tracing(tuple(o.attempt for o in outcomes)),
        versions=_versions(model),
        cache=last.cache and replace(last.cache, most=learned_positions(model)),
        target=last.target,
        world=current(),
    )
    return cut(whole, fragment)


def resolved(model: str | nn.Module | Model, options: Options | None = None) -> Model:
    """A model built as `profile` builds it with the same options, to be profiled more than once."""
    from opgraph.sources import resolve

    asked = options or Options()
    if asked.world_size is not None or asked.laid_out:
        raise InputError(
            "one rank of many is only traced: it is not built for anything else",
            hint="opgraph profile, explore, draw and view trace it; opgraph serve takes --hardware 2xl4",
        )
    built = model if isinstance(model, Model) else resolve(model, BuildOptions.of(asked))
    if asked.mode == "train" and asked.guesses_loss:
        built = with_trained_head(model, built, asked)
    if asked.train != "full":
        from opgraph.tracing.modes.adapters import adapted

        built = adapted(built, asked.train)
    if Mode(asked.mode).generates:
        built = with_generating_head(model, built, asked)
    if asked.memory_format == "channels_last":
        from opgraph.tracing.modes.channels_last import channels_last

        built = channels_last(built)
    return built


def _example(
    model: Model, inputs: Any, kwargs: Mapping[str, Any] | None, request: InputRequest
) -> Example:
    from opgraph.tracing.modes.channels_last import laid_out

    if inputs is None and kwargs is None:
        from opgraph.inputs import inputs_at

        return laid_out(model, inputs_at(model, request))
    if request != InputRequest(dtype=request.dtype, new_tokens=request.new_tokens):
        raise InputError(
            "sizes were asked for, and inputs were given", hint="give one or the other"
        )
    return laid_out(model, _given(model, inputs, kwargs))


def _given(model: Model, inputs: Any, kwargs: Mapping[str, Any] | None) -> Example:
    """The arguments of one call as a person gives them, in the first reading of them that fits."""
    from opgraph.tracing.state.asking import asking

    with asking(inputs, kwargs):
        readings = _readings(model, inputs, dict(kwargs or {}))
        readings = [(_replayable(example), note) for example, note in readings]
    if len(readings) == 1:
        return readings[0][0]
    from opgraph.tracing.eager import trace_fakes
    from opgraph.tracing.fake.tensors import needs_values

    with left_behind() as left:
        errors = ((r, trace_fakes(model, r[0])[-1].error) for r in readings)
        fits = (r for r, error in errors if error is None or needs_values(error))
        example, note = next(fits, (readings[0][0], ""))
    return replace(example, notes=(*filter(None, (note,)), *left))


def _replayable(example: Example) -> Example:
    """The same, whose iterators several runs may go through."""
    from opgraph.tracing.state.iterators import replayable

    args = tuple(map(replayable, example.args))
    return replace(example, args=args, kwargs={n: replayable(a) for n, a in example.kwargs.items()})


def _readings(model: Model, inputs: Any, kwargs: dict[str, Any]) -> list[tuple[Example, str]]:
    """What may be meant by arguments, with what is to be said of it: a tuple holds them, a dictionary with
    names that forward takes those by keyword, and anything else is one. A list that forward does not take
    holds them, too, and of arrays that it does not take tensors are made."""
    if isinstance(inputs, Mapping) and inputs and _names_all(model.module, inputs.keys()):
        inputs, kwargs = (), {**inputs, **kwargs}
    args = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    asked = Example(tuple(args), kwargs)
    readings = [(asked, "")]
    if isinstance(inputs, list):
        note = "the list that was given as inputs is taken as the arguments: forward takes no list"
        readings.append((Example(tuple(inputs), kwargs), note))
    readings += [
        (tensors, f"{note}{'; ' * bool(note)}arrays are taken as tensors: forward takes no arrays")
        for example, note in readings
        if (tensors := _of_arrays(example)) is not None
    ]
    return readings


def _names_all(module: nn.Module, names: KeysView[Any]) -> bool:
    """Whether forward has parameters of these names, or of some of them and takes the rest as keywords."""
    from opgraph.tracing.base import taken

    known = taken(module)
    more = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    return names <= known.keys() or (more and not names.isdisjoint(known))


def _of_arrays(example: Example) -> Example | None:
    """The same with tensors for arrays, which share their memory where they can; None without arrays."""
    import torch
    from torch.utils._pytree import tree_flatten, tree_unflatten

    leaves, tree = tree_flatten((example.args, dict(example.kwargs)))
    others = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    kinds = [getattr(getattr(leaf, "dtype", None), "kind", "") in tuple("biufc") for leaf in others]
    if not any(kinds):
        return None
    made = [torch.as_tensor(x) if array else x for x, array in zip(leaves, kinds, strict=True)]
    return Example(*tree_unflatten(made, tree))


def _versions(model: Model) -> dict[str, str]:
    """The versions of what a figure can depend on."""
    import torch

    from opgraph.sources.registry import libraries

    found = {
        "opgraph": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    owner = model.info.cls.partition(".")[0] or type(model.module).__module__.partition(".")[0]
    for library in sorted({library.package for library in libraries().values()}):
        if library in (owner, model.info.source) and (number := installed(library)) is not None:
            found[library] = number
    return found
