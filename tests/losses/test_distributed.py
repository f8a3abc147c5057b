"""Two gloo processes behave as one process with all of the data."""

from __future__ import annotations

import json
import textwrap

import pytest
import torch

from calibrant.losses import LOSSES, MMCELoss
from tests.processes import run_ranks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
        reason="torch has no gloo here",
    ),
]

EPOCHS, N_TRAIN, N_VAL = 4, 48, 101

SETUP = textwrap.dedent(
    f"""
    import copy, json, sys, torch
    from calibrant.losses import LOSSES, MMCELoss

    def data():
        generator = torch.Generator().manual_seed(0)
        x = torch.randn({N_TRAIN + N_VAL}, 6, dtype=torch.float64, generator=generator)
        noise = torch.randn({N_TRAIN + N_VAL}, 3, dtype=torch.float64, generator=generator)
        x[-40:] = x[-41]  # ties that straddle bins, most of them in one process
        return x, (x[:, :3] + noise).argmax(1)

    def run(wrap, train, val):
        torch.manual_seed(1)
        network = torch.nn.Linear(6, 3).double()
        model = wrap(network)
        losses = {{"adafocal": LOSSES["adafocal"](), "fls-531": LOSSES["fls-531"]()}}
        optimiser = torch.optim.SGD(network.parameters(), lr=0.5)
        x, y = data()
        gammas = []
        for epoch in range({EPOCHS}):
            for loss in losses.values():
                loss.start_epoch(epoch, {EPOCHS})
                optimiser.zero_grad()
                loss(model(x[train]), y[train]).backward()
                optimiser.step()
                with torch.no_grad():
                    loss.update(network(x[val]), y[val])
            state = losses["adafocal"].gamma
            gammas.append([state.gammas.tolist(), state.edges.tolist()])
        with torch.no_grad():
            mmce = MMCELoss().mmce(network(x[train]), y[train]).item()
        return {{"gammas": gammas, "mmce": mmce,
                "weight": network.weight.tolist(), "bias": network.bias.tolist(),
                "scheduled": losses["fls-531"].gamma.gamma.item()}}
    """
)

PROGRAM = SETUP + textwrap.dedent(
    f"""
    rank, folder = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{{folder}}/meet", rank=rank, world_size=2
    )
    half = {N_TRAIN} // 2
    train = slice(0, half) if rank == 0 else slice(half, {N_TRAIN})
    # The parts of the validation set need not be of one size.
    val = slice({N_TRAIN}, {N_TRAIN} + 30) if rank == 0 else slice({N_TRAIN} + 30, None)
    result = run(torch.nn.parallel.DistributedDataParallel, train, val)

    # A process may have nothing to show; and a policy of the other does not mind.
    loss = LOSSES["adafocal"]()
    x, y = data()
    logits = x[:, :3]
    loss.update(logits, y if rank == 0 else torch.full_like(y, -100))
    result["one empty"] = loss.gamma.gammas.tolist()
    print(json.dumps(result))
    torch.distributed.destroy_process_group()
    """
)


@pytest.fixture(scope="module")
def processes(tmp_path_factory) -> list[dict]:
    folder = tmp_path_factory.mktemp("gloo")
    return [json.loads(said) for said in run_ranks("-c", PROGRAM, arguments=[folder])]


@pytest.fixture(scope="module")
def alone() -> dict:
    names: dict = {}
    exec(SETUP, names)
    train, val = slice(0, N_TRAIN), slice(N_TRAIN, None)
    result = names["run"](lambda network: network, train, val)
    result["names"] = names
    return result


def test_both_processes_have_the_same_gammas_to_the_last_bit(processes):
    assert processes[0]["gammas"] == processes[1]["gammas"]
    assert processes[0]["one empty"] == processes[1]["one empty"]


def test_the_gammas_are_those_of_one_process(processes, alone):
    """The sums of gradients are rounded in another order; nothing else differs."""
    ours = torch.tensor([g for g, _ in processes[0]["gammas"]])
    theirs = torch.tensor([g for g, _ in alone["gammas"]])
    torch.testing.assert_close(ours, theirs)
    assert theirs[-1].unique().numel() > 5
    edges = torch.tensor([e for _, e in processes[0]["gammas"]])
    torch.testing.assert_close(edges, torch.tensor([e for _, e in alone["gammas"]]))
    assert (theirs[0] != theirs[-1]).any()
    torch.testing.assert_close(torch.tensor(processes[1]["weight"]), torch.tensor(alone["weight"]))
    assert processes[0]["scheduled"] == alone["scheduled"] == 1.0


def test_the_same_logits_give_the_same_gammas_to_the_last_bit(processes, alone):
    x, y = alone["names"]["data"]()
    loss = LOSSES["adafocal"]()
    loss.update(x[:, :3], y)
    assert processes[0]["one empty"] == loss.gamma.gammas.tolist()


def test_mmce_is_that_of_each_process_alone(processes, alone):
    x, y = alone["names"]["data"]()
    weight, bias = (
        torch.tensor(processes[0][name], dtype=torch.float64) for name in ("weight", "bias")
    )
    half = N_TRAIN // 2
    for process, rows in zip(processes, (slice(0, half), slice(half, N_TRAIN)), strict=True):
        expected = MMCELoss().mmce(x[rows] @ weight.T + bias, y[rows]).item()
        assert process["mmce"] == pytest.approx(expected, rel=1e-9)
    assert processes[0]["mmce"] != pytest.approx(processes[1]["mmce"], rel=1e-3)
