"""Requests through an engine: nothing is lost, and steady states are those of queueing theory."""

from __future__ import annotations

from math import ceil, inf
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opgraph.analysis.cost.conventions import seen
from opgraph.analysis.serving.curve import serve_at
from opgraph.analysis.serving.simulation import Drafts, Engine, Request, arrivals, simulate
from opgraph.analysis.serving.steps import Load

PAGE = 16


def engine(**more) -> Engine:
    return Engine(**{"pages": 10_000, "held": lambda n, _: ceil(n / PAGE), **more})


@pytest.mark.slow
def test_waiting_is_that_of_a_queue_with_one_server():
    """M/D/1: requests of one token, one at a time, wait D * rho / (2 (1 - rho)) on average."""
    service, rho, count = 0.01, 0.5, 40_000
    waits = []
    for seed in range(4):
        times = arrivals(count, rho / service, Random(seed))
        run = simulate((Request(t, 8, 1) for t in times), engine(sequences=1), lambda _: service)
        mean = sum(s.first_token - service for s in run.served) / count
        begins, free = 0.0, 0.0  # Lindley's recursion on the same arrivals
        for t in times:
            begins += max(0.0, free - t)
            free = max(t, free) + service
        assert mean == pytest.approx(begins / count, rel=1e-6)
        waits.append(mean)
    assert sum(waits) / len(waits) == pytest.approx(service * rho / (2 * (1 - rho)), rel=0.02)


def test_a_fixed_batch_takes_the_sum_of_its_steps():
    """All come at once and fit: one step reads, the others give a token each."""

    def seconds(load: Load) -> float:
        return 0.01 + 1e-5 * load.tokens + 1e-6 * load.keys[0]

    batch, prompt, output = 32, 100, 50
    run = simulate([Request(0.0, prompt, output)] * batch, engine(), seconds)
    steps = [Load(batch * prompt, batch, (batch * prompt,), (0,))]
    steps += [Load(batch, batch, (batch * (prompt + i),), (0,)) for i in range(1, output)]
    assert run.end == pytest.approx(sum(map(seconds, steps)), rel=1e-9)
    assert run.steps == output
    served = run.served[0]
    assert served.per_token == pytest.approx(sum(map(seconds, steps[1:])) / (output - 1))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.floats(0, 2), st.integers(1, 200), st.integers(1, 40)), min_size=1,
                   max_size=25),
    pages=st.integers(2, 40), tokens=st.integers(30, 300), sequences=st.integers(1, 12),
    chunked=st.booleans(), drafted=st.integers(0, 3), share=st.floats(0, 1),
)  # fmt: skip
def test_nothing_is_lost_or_done_twice(sizes, pages, tokens, sequences, chunked, drafted, share):
    """Every request is served once or refused, with its tokens; pages are all given back, and at no time
    are there more than there are."""
    asked = [Request(t, p, o, int(p * share)) for t, p, o in sizes]
    loads: list[Load] = []

    def seconds(load: Load) -> float:
        assert load.tokens > 0
        loads.append(load)
        return 0.01

    drafts = Drafts(drafted, 0.5, lambda n, keys, pairs: 0.001 * n) if drafted else None
    one = engine(pages=pages, tokens=tokens, sequences=sequences, chunked=chunked, drafts=drafts)
    run = simulate(asked, one, seconds, seed=1)
    assert sorted([s.request for s in run.served] + run.refused, key=repr) == sorted(
        asked, key=repr
    )
    assert all(s.first >= s.request.arrival and s.last >= s.first for s in run.served)
    # A token has a gap before it, but for the first of a request.
    given_out = sum(s.request.output for s in run.served)
    assert sum(n for _, n in run.gaps) == given_out - len(run.served)
    assert run.fullest <= pages
    if not run.preemptions:
        shared = sum(min(s.request.shared, s.request.prompt - 1) for s in run.served)
        assert run.read == sum(s.request.prompt for s in run.served) - shared
        if not drafted:
            assert sum(x.tokens for x in loads) == run.read + given_out - len(run.served)
    if chunked and not drafted and sequences <= tokens:
        assert max((x.tokens for x in loads), default=0) <= tokens
    assert simulate(asked, one, lambda _: 0.01, seed=1).end == run.end


def test_what_does_not_fit_is_preempted_and_read_again():
    """Two sequences that grow into a cache that holds one and a half of them."""
    run = simulate([Request(0.0, 32, 64)] * 2, engine(pages=9), lambda _: 0.01)
    assert len(run.served) == 2
    assert run.preemptions > 0
    assert run.read > 64


def test_the_drafting_model_reads_prompts_in_their_time():
    """A step that reads takes what the drafting model takes for the same tokens and pairs, too."""
    reads = Drafts(3, 0.8, lambda n, keys, pairs: 0.001 * n + 1e-6 * pairs)
    found = simulate([Request(0.0, 100, 1)], engine(drafts=reads), lambda _: 0.01)
    assert found.served[0].first_token == pytest.approx(0.01 + 0.1 + 1e-6 * 5050)


@pytest.mark.parametrize(("recorded", "first"), [(0, 0.03), (99, 0.03), (100, 0.01)])
def test_a_host_that_launches_each_kernel_holds_up_what_is_not_recorded(recorded, first):
    host = engine(launch=0.03, recorded=recorded)
    found = simulate([Request(0.0, 100, 3)], host, lambda _: 0.01).served[0]
    assert (found.first, found.last) == pytest.approx((first, first + 0.02))


def test_drafts_that_are_accepted_save_steps():
    plain = simulate([Request(0.0, 8, 400)], engine(), lambda _: 0.01)
    drafts = Drafts(3, 0.8, lambda n, keys, pairs: 0.0)
    fast = simulate([Request(0.0, 8, 400)], engine(drafts=drafts), lambda _: 0.01)
    expected = (1 - 0.8**4) / (1 - 0.8)  # tokens a step: 1 + a + a^2 + a^3
    assert plain.steps / fast.steps == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("limit", [None, 1, 5, 100])
def test_pairs_are_those_that_a_window_leaves(limit):
    for before, tokens in ((0, 1), (0, 7), (3, 4), (10, 6), (98, 5)):
        each = (before + i for i in range(1, tokens + 1))
        assert seen(before, tokens, limit) == sum(
            n if limit is None else min(n, limit) for n in each
        )


def test_arrivals_all_at_once_or_at_a_rate():
    assert arrivals(3, inf, Random(0)) == [0.0, 0.0, 0.0]
    assert arrivals(20_000, 8.0, Random(0))[-1] == pytest.approx(2_500, rel=0.02)


def test_engines_apart_serve_requests_that_are_alike_one_by_one():
    """A second and a prompt a step: first tokens come one after the other."""
    from types import SimpleNamespace

    steps = SimpleNamespace(seconds=lambda _: 1.0, exchanging=lambda _: 0.0)
    alike = [Request(7.0, 10, 3) for _ in range(4)]
    found = serve_at(inf, alike, engine(tokens=10), steps, 0, (1, 1))
    assert found.first_token is not None
    assert found.first_token.mean == (1 + 2 + 3 + 4) / 4
    idle = serve_at(inf, alike[:2], engine(tokens=10), steps, 0, (3, 1))
    assert (idle.requests, idle.seconds) == (2, 3.0)
