"""Arguments of the command line, made from the options, and from them to a `Profile`."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opgraph.options import (
    NAMES,
    ON_PAPER,
    OPTIONS,
    TRACED,
    Option,
    Options,
    Stage,
    check_needs,
    names,
    targeted,
)
from opgraph.options.kinds import Amount, Choice, Flag, Whole
from opgraph.record.errors import InputError, OpgraphError, RenderError, one_of
from opgraph.record.kinds import Run
from opgraph.record.remarks import no_effect

if TYPE_CHECKING:
    from opgraph.analysis.costed import CostedRecord
    from opgraph.record.profile import ProfileRecord
    from opgraph.views import Kind, Result, View


class OptionParser(argparse.ArgumentParser):
    """A parser that knows which options were given. They are in `given`; the others have the `settings` of
    pyproject.toml or their defaults."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # A beginning is no option: `--memory` of a command without it is not `--memory-limit`.
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})
        self.settings: Mapping[str, Any] = {}
        self.own: Collection[str] = ()
        self.every = False

    @property
    def flags(self) -> Mapping[str, argparse.Action]:
        """What it takes, by each name as it is typed."""
        return self._option_string_actions

    def format_help(self) -> str:
        """Help with the options that are common or the command's `own`; with all, if `every` is set."""
        rare = [
            a for a in self._actions
            if a.dest in OPTIONS and not OPTIONS[a.dest].listed and a.dest not in self.own
        ]  # fmt: skip
        texts = [a.help for a in rare]
        try:
            for action in () if self.every else rare:
                action.help = argparse.SUPPRESS
            return super().format_help()
        finally:
            for action, text in zip(rare, texts, strict=True):
                action.help = text

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = super().parse_known_args(args, namespace)
        known = [OPTIONS[a.dest] for a in self._actions if a.dest in OPTIONS]
        if known:
            found.given = {o.name for o in known if hasattr(found, o.name)}
        for option in known:
            if option.name not in found.given:
                setattr(found, option.name, self.settings.get(option.name, option.default))
            elif option.kind.repeated:
                setattr(found, option.name, option.check(getattr(found, option.name)))
        check_needs(
            {n: getattr(found, n) for n in _given(found) if OPTIONS[n].stage not in TRACED},
            flag,
            {o.name for o in known},
        )
        return found, unknown


class HelpAll(argparse.Action):
    """Print help with every option, and end."""

    def __call__(self, parser: Any, *_: Any) -> None:
        parser.every = True
        parser.print_help()
        parser.exit()


class _Once(argparse.Action):
    """Keep one value, and refuse a second: of two, one would be ignored."""

    def __call__(self, _: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        if getattr(namespace, self.dest, argparse.SUPPRESS) is not self.default:
            raise InputError(f"{option_string} was given twice", hint="it takes one value")
        setattr(namespace, self.dest, values)


def _given(args: argparse.Namespace) -> list[str]:
    """The options that were given, in their order."""
    given = getattr(args, "given", ())
    return [name for name in OPTIONS if name in given]


def flag(name: str, value: Any = None) -> str:
    """An option as it is typed."""
    return OPTIONS[name].flag + ("" if value is None or value is True else f" {value}")


def add_options(
    parser: argparse.ArgumentParser,
    *which: str,
    several: Collection[str] = (),
    words: Mapping[str, str | tuple[str, ...]] | None = None,
) -> None:
    """Give a command these options, in the groups of their stages. Those in `several` are lists, separated
    by commas. `words` are helps that only the command can know, or the choices that it has."""
    groups = {g.title: g for g in parser._action_groups}  # noqa: SLF001 - there is no public list
    for name in which:
        option = OPTIONS[name]
        said = (words or {}).get(name, option.help)
        if isinstance(said, tuple):
            option, said = replace(option, kind=Choice(said)), ", ".join(said)
        title = option.stage.value
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        _add(groups[title], option, name in several, said)


def _add(group: argparse._ArgumentGroup, option: Option, several: bool, text: str) -> None:
    kind = option.kind
    short = [f for f in option.flags if not f.startswith("--")]
    long = [option.flag, *(f for f in option.flags if f.startswith("--"))]
    more: dict[str, Any] = {"dest": option.name, "default": argparse.SUPPRESS}
    more["help"] = text.replace("%", "%%")
    if isinstance(kind, Flag):
        more["action"] = "store_false" if option.default else "store_true"
        group.add_argument(*short, *long, **more)
        return
    more["type"] = _list_of(option) if several else option.parse
    more["metavar"] = option.metavar
    more["action"] = "append" if kind.repeated else _Once
    if several:
        more["metavar"] = f"{option.metavar.split(' or ')[0]},…"
    elif isinstance(kind, Choice):
        more["choices"] = kind.values
        more["metavar"] = option.unit
    if option.default and isinstance(kind, (Amount, Choice, Whole)) and option.unit is None:
        more["help"] += f" ({option.default})"
    names = [*short, *long, f"--{option.name.replace('_', '-')}"]
    group.add_argument(*dict.fromkeys(names), **more)


def _list_of(option: Option) -> Callable[[str], list[Any]]:
    return lambda text: [option.parse(part.strip()) for part in text.split(",")]


def add_model(
    parser: argparse.ArgumentParser,
    *,
    positional: bool = True,
    optional: bool = False,
    several: Collection[str] = (),
    saved: bool = True,
    stages: tuple[Stage, ...] = TRACED,
) -> None:
    """The model (which may be `optional`) and the options of how it is profiled, or of some `stages` of
    that; without `positional`, the options alone; those in `several` are lists. A `saved` profile does,
    too, where nothing has to be traced."""
    if positional:
        parser.add_argument(
            "model",
            metavar="MODEL",
            nargs="?" if optional else None,
            help="a name (resnet18, bert-base-uncased, yolov8n.pt)"
            + (" or a saved profile (.json)" if saved else ""),
        )
    add_options(parser, *names(*stages), *(("cache",) if saved else ()), several=several)


def profile_from(
    args: argparse.Namespace, *, own: argparse.Namespace | None = None
) -> ProfileRecord:
    """The profile that the arguments ask for: loaded, or traced now. What the model itself prints goes to
    stderr, so that results stay alone on stdout.

    Raises `InputError` for a saved profile with options that only tracing can meet; of several models,
    one is asked for its `own` alone.
    """
    from opgraph.record.loading import is_saved_profile, load

    if is_saved_profile(args.model):
        from opgraph.analysis.cost.conventions import counted

        saved = load(args.model)
        _refuse_tracing(args if own is None else own, saved.mode)
        if args.mode not in ("infer", saved.mode):
            raise InputError(f"this profile was saved in the mode {saved.mode}",
                             hint=f"name the model to trace it with --mode {args.mode}")  # fmt: skip
        return counted(_fragment(saved, args.fragment), args.count)
    from opgraph.api import cache
    from opgraph.cli.output import progress, say

    options = options_from(args)
    if getattr(args, "hardware", None):
        from opgraph.hardware import cluster

        options = targeted(options, cluster(args.hardware)[1].target)
    asked = Options(**options)
    file = cache.place(args.model, asked) if getattr(args, "cache", True) else None
    known = None if file is None else cache.kept(file)
    if known is not None:
        say("from cache (--no-cache traces again)")
        return _noted(args, known)
    from opgraph.api.pipeline import profiled

    with progress() as tell:
        tell(f"tracing {args.model} …")
        found = profiled(args.model, options=asked)
    if file is not None and file == cache.place(args.model, asked):  # nothing changed meanwhile
        cache.keep(file, found)
    return _noted(args, found)


def _noted(args: argparse.Namespace, found: ProfileRecord) -> ProfileRecord:
    """The same with a remark where the generation that was asked for changes nothing beside the usual
    target."""
    from opgraph.record.targets import USUAL, chosen_for

    if "target" not in args.given or not args.target.startswith(f"{USUAL}:"):
        return found
    choices = [s.choices for s in found.target.substitutions]
    if any(chosen_for(c, args.target) != chosen_for(c, USUAL) for c in choices):
        return found
    note = no_effect("target", f"no operator of {found.model.name} has another kernel there")
    return replace(found, model=found.model.noting(note))


def _fragment(saved: ProfileRecord, which: int | str) -> ProfileRecord:
    if which == "all":
        return saved
    from opgraph.analysis.cost.fragments import cut

    return cut(saved, which)


def costed_from(args: argparse.Namespace, profile: ProfileRecord | None = None) -> CostedRecord:
    """The profile that the arguments ask for, on the device that they name, or on the generic ridge."""
    from opgraph.analysis.costed import ASKED, costed

    chosen = getattr(args, "hardware", None)
    if chosen is not None:
        from opgraph.hardware import cluster

        cluster(chosen)  # one that there is none of should not wait for the tracing
    asked = {n: getattr(args, n, None) for n in ASKED if n != "count"}  # which profiles have
    if not _is_saved(args):  # it is traced as it is laid out
        asked = {n: v for n, v in asked.items() if n not in ON_PAPER}
    return costed(profile_from(args) if profile is None else profile, chosen, **asked)


def _is_saved(args: argparse.Namespace) -> bool:
    from opgraph.record.loading import is_saved_profile

    model = getattr(args, "model", None)
    return isinstance(model, str) and is_saved_profile(model)


def _refuse_tracing(args: argparse.Namespace, saved_mode: str) -> None:
    """A saved profile is as it was traced: what cannot be had from it is not passed over in silence."""
    for name in _given(args):
        if name == "mode" and args.mode == saved_mode:
            continue
        if name in ON_PAPER and getattr(args, "on_paper", False):
            continue
        if OPTIONS[name].stage in TRACED and OPTIONS[name].stage is not Stage.COUNTING:
            raise InputError(
                f"{flag(name)} is for tracing, and {getattr(args, 'model', 'each')} is a saved profile"
                + (f" of the mode {saved_mode}" if name == "mode" and saved_mode else ""),
                hint="name the model instead",
            )


def refuse_unheeded(
    args: argparse.Namespace,
    heeded: Collection[str],
    by: str,
    hint: str | None = None,
    result: Result = "costed",
) -> None:
    """Raise `RenderError` for an option that was given and would change nothing of what `by` shows."""
    for name in _given(args):
        if name not in heeded and OPTIONS[name].stage not in (Stage.OUTPUT, Stage.SAYING):
            from opgraph.views import views

            others = [v for v in views().values() if v.result == result and name in heeded_by(v)]
            forms = ", ".join(dict.fromkeys(v.suffixes[0] for v in others))
            raise RenderError(
                f"{flag(name)} changes nothing of {by}",
                hint=hint or (f"it is for {forms}" if forms else "leave it out"),
            )


def heeded_by(view: View) -> set[str]:
    """The options that change what a view shows: its own, those of what it is given, and, since these make
    that, those of tracing and of the command."""
    found = {*names(*TRACED, Stage.COMMAND)} - {"symbolic"}
    if view.result == "costed":
        found.discard("count")
    return found | {*view.heeds, *view.costs}


def view_from(
    args: argparse.Namespace,
    *,
    kind: Kind | None = None,
    result: Result = "costed",
    usual: str,
) -> View:
    """The view that the arguments ask for: by the suffix of their file, by name, or the `usual` one.

    Raises `RenderError` where two are asked for, where the file cannot be written, for an option that the
    view would not heed, and where it needs one that is not there.
    """
    from opgraph.views import view_for, view_named

    given = _answers(args)
    form = getattr(args, "format", None)
    if form is not None:
        from opgraph.views import views_of

        known = [v.name.removeprefix(f"{result}-") for v in views_of(result) if v.name != result]
        if form not in known:
            raise RenderError(f"there is no format {form!r:.40}", hint=one_of(form, known))
        view = view_named(form if result == "costed" else f"{result}-{form}")
    elif given and given[0] != "output":
        view = view_named(given[0] if result == "costed" else f"{result}-{given[0]}")
    elif given:
        view = view_for(args.output, kind, result=result)
    else:
        view = view_named(usual)
    heeded = heeded_by(view)
    if _is_saved(args):
        heeded -= {*ON_PAPER} - {*view.costs}
    refuse_unheeded(args, heeded, _said(view), result=result)
    if "color_by" in view.heeds and "partition" in args.given and args.color_by != "fusion":
        raise RenderError(f"--partition changes nothing of {view.name} coloured by {args.color_by}",
                          hint="add --color-by fusion")  # fmt: skip
    on = ("hardware",) if getattr(args, "hardware", None) else ()
    view.check_values(view_options(args, view), on, flag)
    if args.output is not None:
        is_profile = (view.name, result) == ("json", "costed")
        ensure_nothing_is_lost(args, PROFILE if is_profile else None)
    return view


def _said(view: View) -> str:
    """A view in a person's words: the ending of its files, and what it is of."""
    return f"the {view.suffixes[0]} of a {'profile' if view.result == 'costed' else view.result}"


def _answers(args: argparse.Namespace) -> list[str]:
    """In what form the answer is asked for, at most one. Raises `RenderError`."""
    given = [n for n in ("json", "markdown", "output") if getattr(args, n, None)]
    if getattr(args, "format", None) is not None and (given and given != ["output"]):
        given.append("format")
    if len(given) > 1:
        raise RenderError(f"{' and '.join(map(flag, given))} are two answers",
                          hint="ask for one of them")  # fmt: skip
    return given


def form_of(args: argparse.Namespace, known: tuple[str, ...] = (), command: str = "") -> str | None:
    """The suffix of the form that is asked for, of those that a command writes by itself; None for a
    terminal. Raises `RenderError`."""
    from opgraph.record.files import suffix_of

    given = _answers(args)
    form = getattr(args, "format", None)
    if form is not None:
        from opgraph.views.tables import FORMS

        if form not in FORMS:
            raise RenderError(f"there is no form {form!r:.40} of a table", hint=one_of(form, FORMS))
        return f".{form}"
    if not given:
        return None
    if given[0] != "output":
        return f".{given[0]}"
    suffix = suffix_of(args.output, known, command)
    ensure_nothing_is_lost(args)
    return suffix


PROFILE = '"format": "opgraph-profile"'
"""By which a saved profile is told, near its beginning."""
_HEAD = 400


def ensure_nothing_is_lost(args: argparse.Namespace, same: str | None = None) -> None:
    """Find out before the work whether the output can be written, and that this replaces nothing that is
    read and no saved profile. Where what the command makes is told by a text in its beginning that is the
    `same` each time, that may be made anew, and no code or Markdown of a person's own is replaced.

    Raises `RenderError` where it would.
    """
    from opgraph.record.files import ensure_writable

    ensure_writable(args.output)
    target = Path(args.output)
    if not target.is_file():
        return
    with target.open("rb") as file:
        head = file.read(_HEAD).decode("utf-8", "replace")
    if same is not None and same in head:
        return
    words = [part for word in typed_without(args, "output") for part in (word, *word.split())]
    named = {
        name for word in words for name in (word, word.partition("=")[2], word.rpartition(":")[0])
    }
    if any(_is_file(name, target) for name in named if name):
        raise RenderError(f"{args.output} is read, and would be lost", hint="name another file")
    if PROFILE in head or (same is not None and target.suffix in (".py", ".md")):
        what = "a saved profile" if PROFILE in head else "there, and opgraph did not make it"
        raise RenderError(f"{args.output} is {what}: it would be lost",
                          hint="name another file, or remove it before")  # fmt: skip


def _is_file(name: str, target: Path) -> bool:
    try:
        return Path(name).samefile(target)
    except (OSError, ValueError):
        return False


def typed_without(args: argparse.Namespace, *which: str) -> list[str]:
    """The words of the command line, but for these options."""
    alone = {f: isinstance(o.kind, Flag) for o in map(OPTIONS.__getitem__, which)
             for f in (o.flag, *o.flags, f"--{o.name.replace('_', '-')}")}  # fmt: skip
    kept, skip = [], False
    for word in args.arguments:
        name, sign, _ = word.partition("=")
        glued = not word.startswith("--") and word[:2] in alone and not alone[word[:2]]
        if skip or (name not in alone and not glued):
            if not skip:
                kept.append(word)
            skip = False
        else:
            skip = name in alone and not (alone[name] or sign)
    return kept


def suffixes(result: Result) -> str:
    """The suffixes of the files that a result can be written to."""
    from opgraph.views import views_of

    return ", ".join(s for v in views_of(result) for s in v.suffixes)


def view_options(args: argparse.Namespace, view: View) -> dict[str, Any]:
    """The options of its own that a view gets."""
    taken = {n: getattr(args, n) for n in view.heeds if hasattr(args, n)}
    # What was not asked for is left to the view, which has the default of its own.
    return {n: v for n, v in taken.items() if n in args.given or v != OPTIONS[n].default}


def show_view(args: argparse.Namespace, view: View, result: Any) -> None:
    """Answer with a view of a result; one that is read on a terminal is as wide as that is. A saved profile
    is of no device, which is said."""
    from opgraph.cli.output import answer, color, say, width

    options = view_options(args, view)
    if view.name in ("table", view.result) and args.output is None:
        options |= {"color": color(), "width": width()}
    answer(args.output, view.load()(result, **options))
    if view.name == "json" and args.output is not None and "hardware" in args.given:
        say(f"note: a saved profile is of no device: name it again with --hardware {args.hardware}")


def options_from(args: argparse.Namespace) -> dict[str, Any]:
    """The options for `profile` (see `opgraph.options.Options`) that the arguments ask for.

    Raises `InputError` for those that mean nothing to the others.
    """
    compiles = Run(getattr(args, "run", None) or Run.EAGER).compiled
    inductor = compiles or getattr(args, "partition", None) == "inductor"
    check_needs(
        {
            **{n: getattr(args, n) for n in _given(args) if OPTIONS[n].stage in TRACED},
            **({"inductor": True} if inductor else {}),
        },
        flag,
    )
    found = {name: getattr(args, name) for name in NAMES if hasattr(args, name)}
    lower = getattr(args, "autocast", None) if compiles else None
    return {**found, "inductor": inductor, "inductor_autocast": lower}


def profile_of(spec: str, args: argparse.Namespace) -> ProfileRecord:
    """The profile of a model that is named with options of its own ('gpt2 --dtype bfloat16'), on top of
    those that are for all.

    Raises `InputError` for a saved profile that is itself named with options that only tracing can meet.
    """
    parser = _SpecParser(prog=spec, add_help=False)
    add_model(parser)
    try:
        own = parser.parse_args(_words(spec))
        return profile_from(_with(own, args), own=own)
    except OpgraphError as error:
        error.args = (f"{spec}: {error}" if spec not in str(error) else str(error),)
        raise


def refuse_untraced(args: argparse.Namespace, specs: Iterable[str]) -> None:
    """Raise `InputError` for options of tracing for several models none of which is traced."""
    from opgraph.record.loading import is_saved_profile

    if all(is_saved_profile(_words(spec)[0]) for spec in specs):
        _refuse_tracing(args, "")


def _with(own: argparse.Namespace, shared: argparse.Namespace) -> argparse.Namespace:
    """Arguments on top of those that are shared; of what goes by name, both. What the command alone has
    (the device, how it is run) says for what is traced, too."""
    merged = argparse.Namespace(**{**vars(shared), **vars(own)})
    for name in shared.given & vars(own).keys():
        theirs, mine = getattr(shared, name), getattr(own, name)
        if isinstance(theirs, dict):
            setattr(merged, name, {**theirs, **mine})
        elif name not in own.given:
            setattr(merged, name, theirs)
    merged.given = own.given | (shared.given & vars(own).keys())
    return merged


def _words(spec: str) -> list[str]:
    """A path with spaces that exists is one word; else as a shell splits it."""
    try:
        return [spec] if Path(spec).exists() else shlex.split(spec)
    except (OSError, ValueError):
        return [spec]


class _SpecParser(OptionParser):
    """A parser of a model with its options, whose complaints name that model."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise RenderError(f"{self.prog}: {message}")
