"""Copies of a model that opgraph makes, since it runs another than the one that is given. What code of the
model does as it is copied holds as long as there is a copy, which may go by it; what that does as the copy
ends is heard. Afterwards all is as before the first copy."""

from __future__ import annotations

import copy
import gc
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from opgraph.record.identity import identity
from opgraph.record.remarks import leave
from opgraph.tracing.fake.types import graded
from opgraph.tracing.state.aside import plainly
from opgraph.tracing.state.guard import COPYING, guarded
from opgraph.tracing.state.imports import Imports
from opgraph.tracing.state.leaks import settle
from opgraph.tracing.state.others import alone
from opgraph.tracing.state.reach import Reach

T = TypeVar("T")


def copied(module: nn.Module, memo: dict[int, Any] | None = None) -> nn.Module:
    """A copy of a module, with what stands in its place for what `memo` has. It ends as the innermost
    `ending` is left, unless somebody has it then."""
    known = _known(module)
    return deep_copy(module, memo) if known is None else known.once_more(memo)


def deep_copy(item: T, memo: dict[int, Any] | None = None) -> T:
    """A copy of a module, or of anything, that is the caller's own. Of a result that it keeps the copy has
    the values alone: torch copies no history. Its weights have the attributes of those that they are copies
    of, which torch does not copy, either, as far as there can be copies of them."""
    memo = {} if memo is None else memo
    with _WithoutHistory():
        made = copy.deepcopy(item, memo)
        known = memo.get(id(memo), ())  # what there is a copy of
        for weight in [each for each in known if issubclass(type(each), nn.Parameter)]:
            for name, value in vars(weight).items():
                with suppress(Exception):
                    vars(memo[id(weight)])[name] = copy.deepcopy(value, memo)
        return made


class _WithoutHistory(TorchFunctionMode):
    """Within, a tensor that is the result of others is copied as one that nothing led to."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is not Tensor.__deepcopy__ or graded(args[0], "is_leaf"):
            return func(*args, **kwargs or {})
        tensor, memo = args
        alone = tensor.detach()
        memo.setdefault(id(memo), []).append(alone)  # by whose id it is known there
        made = memo[id(tensor)] = func(alone, memo)  # in one storage with what it is a view of
        with self:
            vars(made).update(copy.deepcopy(vars(tensor), memo))
        return made


def _known(module: nn.Module) -> _Copied | None:
    """A model of which there are copies, or will be, which are to end."""
    among = _among.get()
    if among is None:
        return None
    return among.get(identity(module)) or among.setdefault(identity(module), _Copied(module))


@contextmanager
def adapting(module: nn.Module) -> Iterator[None]:
    """Within, copies of a module are made, asked what they consist of, and get other parts. What its code
    does then holds until they end."""
    known = _known(module)
    if known is None:
        yield
    else:
        with known.adapted():
            yield


@contextmanager
def ending() -> Iterator[None]:
    """Within, copies of models are made, which end as it is left; what they changed is as before."""
    among: dict[int, _Copied] = {}
    token, around = _among.set(among), sys.exception()
    raised: BaseException | None = None
    try:
        try:
            yield
        except BaseException as error:  # noqa: BLE001  (its frames have copies)
            raised = error
        _among.reset(token)
        if among:
            _end(list(among.values()), raised, around)
        if raised is not None:
            raise raised
    finally:
        del raised, around  # they lead here


_ASKED = frozenset(
    "modules named_modules children named_children parameters named_parameters buffers named_buffers "
    "get_submodule get_output_embeddings __setattr__ __getattr__ __delattr__".split()
)
"""Methods by which a copy is asked what it consists of, and gets other parts."""
_among: ContextVar[dict[int, _Copied] | None] = ContextVar("copies", default=None)


class _Copied:
    """A model of which there are copies, and what it could reach before the first."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._alone = alone()
        self._copies: list[nn.Module] = []
        with plainly():
            self._before = Reach.of([module], called=COPYING | _ASKED)
        self._then, self._in_hand = self._before.now(), False  # within `adapted`

    def once_more(self, memo: dict[int, Any] | None) -> nn.Module:
        """One copy more."""
        with self.adapted():
            made = deep_copy(self.module, memo)
        self._copies.append(made)
        return made

    @contextmanager
    def adapted(self) -> Iterator[None]:
        """Within, copies are made and changed. What somebody else changed since that was last done is not
        to be brought back, nor is what an import does meanwhile."""
        if self._in_hand:
            yield
            return
        self.look()
        imports = Imports(
            self._before.now, lambda _, then, __: self._before.let_stay(then), plainly
        )
        self._in_hand = True
        imports.begin()
        try:
            yield
        finally:
            imports.end()
            self._in_hand, self._then = False, self._before.now()

    def look(self) -> None:
        """What changed since copies were last in hand is as if it had been before the first."""
        with plainly():
            self._before.let_stay(self._then)

    def end(self) -> list[weakref.ref[nn.Module]]:
        """Let go of the copies, of which those that are there still can be asked for."""
        there = [weakref.ref(made) for made in self._copies]
        self._copies.clear()
        return there

    def back(self) -> None:
        """Bring back what copying changed."""
        with plainly():
            leave(self._before.restore_all(alone=self._alone and alone()))


def _end(among: list[_Copied], error: BaseException | None, around: BaseException | None) -> None:
    """Let copies come to their end, and all be as before; frames that an error has passed have some."""
    with guarded([of.module for of in among], called=COPYING):
        for of in among:
            of.look()
        left = [made for of in among for made in of.end()]
        settle(error, (around,))
        for generation in range(3):  # the youngest first: there are few of them
            if any(made() is not None for made in left):
                gc.collect(generation)
    for of in reversed(among):
        of.back()
