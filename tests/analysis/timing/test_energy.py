"""Energy and price of a run: by hand, and within what a device can draw."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.analysis.timing.toys import product, toy
from tests.conftest import DATA

import opgraph
from opgraph.analysis.costed import CostedRecord, costed
from opgraph.analysis.timing.energy import STREAM, energy
from opgraph.analysis.timing.prediction import predict
from opgraph.analysis.timing.workload import workload
from opgraph.cli import main
from opgraph.hardware import device, devices
from opgraph.record.units import spread

POWER = {"power.limit": 100.0, "power.idle": 20.0}
BERT = str(DATA / "bert-base-uncased.json")


def test_by_hand():
    """A FLOP of 1 TFLOP/s draws 80 W beside the 20 of nothing, a byte of 100 GB/s `STREAM` of that."""
    graph, machine = product(4096, 4096, 4096), toy(**POWER)
    found = predict(graph, machine)
    spent = energy(workload(graph), found, machine)
    assert spent is not None
    arithmetic, traffic = 2 * 4096**3 / 1e12, 3 * 4 * 4096**2 / 1e11
    assert spent.joules == pytest.approx(20 * found.seconds + 80 * (arithmetic + STREAM * traffic))
    assert 20 < spent.watts < 100
    assert spent.interval[0] < spent.joules < spent.interval[1] <= 100 * found.interval[1]


def test_waiting_costs_what_idling_does():
    """The same work takes the same energy beside that of the time that its launches take."""
    graph = product(64, 64, 64)
    quick, slow = toy(**POWER), toy(**POWER, **{"host.call": 1.0})
    a, b = (energy(workload(graph), predict(graph, m), m) for m in (quick, slow))
    assert a is not None
    assert b is not None
    waited = predict(graph, slow).seconds - predict(graph, quick).seconds
    assert b.joules - a.joules == pytest.approx(20 * waited)


@pytest.mark.slow
def test_no_device_draws_more_than_its_limit():
    profile = opgraph.load(BERT)
    for machine in devices():
        found = profile.on(machine).energy
        assert (found is None) == (machine.power_limit is None)
        if found is not None and machine.power_limit is not None:
            assert machine.idle_power <= found.watts <= machine.power_limit


def test_a_price_is_of_the_time():
    profile = opgraph.load(BERT)
    record = profile.on("h100-sxm", price_per_hour=3.6)
    assert record.price is not None
    assert record.prediction is not None
    assert record.price.run == pytest.approx(record.prediction.seconds / 1000)
    assert record.price.interval == pytest.approx([s / 1000 for s in record.prediction.interval])
    assert profile.on("h100-sxm").price is None
    assert record.to_dict()["costed"]["price"]["per_hour"] == 3.6


def test_where_it_is_said(capsys):
    asked = ["profile", BERT, "--hardware", "h200", "--price-per-hour", "3.6"]
    assert main(asked) == 0
    table = capsys.readouterr().out
    assert "\nEnergy  " in table
    assert "W on average" in table
    assert "\nPrice  " in table
    said = " ".join(table.split())  # as wide as the terminal is
    assert " mJ (" in said[said.index(", price") - 30 :]
    assert main([*asked, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["costed"]
    assert data["energy"]["interval"][0] < data["energy"]["joules"] < data["energy"]["interval"][1]
    assert main(["profile", BERT, "--price-per-hour", "3.6"]) == 2


def test_an_unknown_limit_is_no_energy():
    record = costed(opgraph.load(BERT), device("apple-m4"))
    assert record.energy is None
    assert replace(CostedRecord(record.profile)).energy is None


@pytest.mark.parametrize(
    ("number", "text"),
    [(1400.0, "1.40 kJ (1.26–1.54)"), (0.0123, "12.3 mJ (11.1–13.5)"), (222.0, "222 J (200–244)")],
)
def test_an_amount_with_its_interval(number, text):
    assert spread(number, "J", (0.9 * number, 1.1 * number)) == text
