"""Hostile files by the thousand: saved profiles, checkpoints, exported programs, device files and
configurations, each made from a sound one and a number. Bytes are flipped, cut and doubled; values become
other types, huge numbers, deep nests and other parts of the same file; pickles call what they should not.

`attempt` opens one as a person would, and all that may happen is that it works or raises an `OpgraphError`.
"""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import random
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import opgraph
from opgraph.hardware import device
from opgraph.hardware.devices import FOLDER
from opgraph.views import render, views_of

DATA = Path(__file__).parent / "data"
MARK = "OPGRAPH_HOSTILE_MARK"
"""The environment variable that names a file which code in a hostile file would make."""


def make(kind: str, number: int, folder: Path) -> Path:
    """The hostile file of that kind and number, written into a folder."""
    rng = random.Random(f"{kind} {number}")
    return KINDS[kind][0](rng, folder)


def attempt(kind: str, path: Path, number: int = 0) -> None:
    """Open it, and use it if it opens."""
    KINDS[kind][1](path, random.Random(number))


# Bytes


def damaged(content: bytes, rng: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(6):
            case 0:
                del data[at:]
            case 1 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 2:
                data[at:at] = rng.randbytes(rng.choice((1, 4, 64)))
            case 3:
                del data[at : at + rng.choice((1, 16, 512))]
            case 4:
                data[at:at] = data[at : at + rng.choice((8, 256))] * rng.choice((1, 50))
            case _:
                data[at : at + 4] = rng.choice((b"\0" * 4, b"\xff" * 4, b"\x7f\xff\xff\xff"))
    return bytes(data)


# JSON and TOML


def deep(rng: random.Random) -> Any:
    nest: Any = []
    for _ in range(rng.choice((5, 200, 900))):
        nest = [nest] if rng.random() < 0.5 else {"a": nest}
    return nest


def odd(rng: random.Random, whole: Any) -> Any:
    """A value that nobody expects."""
    simple = [None, True, False, 0, 1, -1, 2**31, 2**63, -(2**63), 10**30, 10**400, 1e308, -0.0, 5e-324,
              float("nan"), float("inf"), "", "\0", "\x1b[31m\u202e", "</script>", "x" * 100_000, "\ud800",
              "../../etc/passwd", "__import__('os').system('id')", "%s%n{0.__class__}", [], {}, [[]],
              {"": {}}, [1] * 10_000]  # fmt: skip
    if rng.random() < 0.1:
        return deep(rng)
    if rng.random() < 0.15:
        return copy.deepcopy(place(rng, whole)[2])
    return rng.choice(simple)


def place(rng: random.Random, whole: Any) -> tuple[Any, Any, Any]:
    """A random place in nested data: what it is in, the key, and what is there."""
    here, key = whole, None
    holder: Any = None
    while isinstance(here, (dict, list)) and here and (holder is None or rng.random() < 0.85):
        holder = here
        key = rng.choice(list(here)) if isinstance(here, dict) else rng.randrange(len(here))
        here = here[key]
    return holder, key, here


def wrong(data: Any, rng: random.Random) -> Any:
    """The data with something else in one to three places."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        holder, key, value = place(rng, data)
        if holder is None:
            return odd(rng, data)
        match rng.randrange(6):
            case 0:
                del holder[key]
            case 1 if isinstance(value, int):
                holder[key] = value + rng.choice((-1, 1, 1000))
            case 2 if isinstance(holder, list):
                holder[key:key] = [value] * rng.choice((1, 3, 2000))
            case 3 if isinstance(holder, dict):
                holder[rng.choice(("", "op", "id", "x" * 1000, "\x1b[2J"))] = holder.pop(key)
            case _:
                holder[key] = odd(rng, data)
    return data


def as_json(data: Any) -> bytes:
    return json.dumps(data).encode()


# Pickles


class Calls:
    """Pickles as a call."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.call = (function, args)

    def __reduce__(self) -> Any:
        return self.call

    def __call__(self) -> None:
        """Only what can be called may be pickled as a function; it is not called here."""


def attack(rng: random.Random) -> Any:
    """An object that runs code when it is unpickled by someone who trusts it."""
    import builtins
    import functools
    import importlib
    import operator
    import shutil
    import subprocess

    import torch

    mark = os.environ.get(MARK, "/nonexistent/mark")
    script = f"open({mark!r}, 'w')"
    found = rng.choice(
        [
            Calls(os.system, f"touch {mark}"),
            Calls(eval, script),
            Calls(exec, script),
            Calls(subprocess.Popen, ["touch", mark]),
            Calls(builtins.open, mark, "w"),
            Calls(Path.touch, Path(mark)),
            Calls(shutil.rmtree, f"{mark}.folder"),
            Calls(importlib.import_module, "antigravity"),
            Calls(functools.partial(os.system, f"touch {mark}")),
            Calls(operator.methodcaller("touch"), Path(mark)),
            Calls(Calls(getattr, os, "system"), f"touch {mark}"),
            Calls(getattr, Calls(importlib.import_module, "os"), "system"),
            Calls(torch.load, mark, None),
            Calls(torch.save, {}, mark),
            Calls(torch.hub.load, "a/b", "c"),
            Calls(pickle.loads, pickle.dumps(Calls(os.system, f"touch {mark}"))),
            Calls(torch.nn.Sequential, torch.nn.Linear(1, 1)),
            Calls(getattr, torch.nn.Linear(1, 1), rng.choice(("load_state_dict", "apply", "_apply"))),
        ]
    )  # fmt: skip
    return nested(found, rng)


def nested(item: Any, rng: random.Random) -> Any:
    for _ in range(rng.randrange(4)):
        item = rng.choice(([item], {"a": item}, (item,), [1, [item]], {"model": item}))
    return item


def checkpoint(rng: random.Random, folder: Path) -> Path:
    path = folder / "hostile.pt"
    match rng.randrange(8):
        case 0 | 1:
            path.write_bytes(damaged(sound_checkpoint(), rng))
        case 2 | 3:
            rewritten(sound_checkpoint(), path, rng)
        case 4:
            path.write_bytes(_pickled(attack(rng)))
        case 5:
            _save(module_with(attack(rng), rng), path)
        case 6:
            _save(module_with(odd_part(rng), rng), path)
        case _:
            _save(attack(rng), path)
    return path


def _pickled(content: Any) -> bytes:
    try:
        return pickle.dumps(content, protocol=2)
    except Exception:  # noqa: BLE001 - not everything that is hostile can be pickled
        return b"cos\nsystem\n."


def _save(content: Any, path: Path) -> None:
    import torch

    try:
        torch.save(content, path)
    except Exception:  # noqa: BLE001 - not everything that is hostile can be pickled
        path.write_bytes(b"PK\3\4")


def odd_part(rng: random.Random) -> Any:
    import torch

    return rng.choice([
        None, 3, "text", {"a": 3}, [torch.ones(1)], torch.nn.Linear(1, 1), torch.nn.ReLU,
        torch.zeros(1).expand(10**6, 10**6), torch.empty(10**6, 10**6, device="meta"), deep(rng),
        torch.ones(2, dtype=torch.complex64), torch.eye(2).to_sparse(), torch.float32, float("nan"),
        10**400,
    ])  # fmt: skip


def module_with(part: Any, rng: random.Random) -> Any:
    """A module that has something where it should not be."""
    import torch
    from torch import nn

    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    owner = rng.choice((model, model[0], model[1]))
    match rng.randrange(9):
        case 0:
            owner._modules["inner"] = part
        case 1:
            owner._parameters["weight"] = part
        case 2:
            owner._buffers["table"] = part
        case 3:
            owner._forward_hooks[0] = part
        case 4:
            owner.forward = part
        case 5:
            key = rng.choice(sorted(vars(owner)))
            owner.__dict__[key] = part
        case 6:
            owner._modules["self"] = model
        case 7:
            owner._parameters["weight"] = (
                nn.Parameter(part, requires_grad=False)
                if isinstance(part, torch.Tensor) and part.is_floating_point()
                else part
            )
        case _:
            model.args, model.yaml = {"imgsz": part}, part
    return model


@cache
def sound_checkpoint() -> bytes:
    import torch
    from torch import nn

    data = io.BytesIO()
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    torch.save({"model": model, "epoch": 3, "args": {"imgsz": 32}}, data)
    return data.getvalue()


# Archives


def rewritten(content: bytes, path: Path, rng: random.Random) -> None:
    """The archive with something wrong with one member."""
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(path, "w") as new:
        names = old.namelist()
        chosen = rng.choice(names)
        for name in names:
            data = old.read(name)
            if name != chosen:
                new.writestr(name, data)
                continue
            match rng.randrange(9):
                case 0:
                    continue
                case 1:
                    new.writestr(name, data)
                    new.writestr(name, damaged(data, rng))
                case 2:
                    new.writestr(name, old.read(rng.choice(names)))
                case 3:
                    new.writestr(rng.choice(("../../x", "/etc/x", name + "/", "x" * 5000)), data)
                case 4:
                    packed = rng.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
                    new.writestr(name, data, packed)
                case 5:
                    new.writestr(name, b"\0" * rng.choice((2**20, 2**27)), zipfile.ZIP_DEFLATED)
                case 6 if name.endswith(("data.pkl", ".pt")):
                    new.writestr(name, _pickled(attack(rng)))
                case 7:
                    new.writestr(name, b"")
                case _ if name.endswith(".json"):
                    new.writestr(name, as_json(wrong(json.loads(data), rng)))
                case _:
                    new.writestr(name, damaged(data, rng))


@cache
def sound_program() -> bytes:
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 4)
            self.register_buffer("shift", torch.ones(4))

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"y": self.linear(x) + self.shift, "sum": x.sum()}

    data = io.BytesIO()
    sizes = {"x": {0: torch.export.Dim("n", min=2, max=9)}}
    program = torch.export.export(Net().eval(), (torch.randn(2, 3),), dynamic_shapes=sizes)
    torch.export.save(program, data)
    return data.getvalue()


def program(rng: random.Random, folder: Path) -> Path:
    path = folder / "hostile.pt2"
    if rng.randrange(4) == 0:
        path.write_bytes(damaged(sound_program(), rng))
    elif rng.randrange(2):
        rewritten(sound_program(), path, rng)
    else:
        retold(path, rng)
    return path


def retold(path: Path, rng: random.Random) -> None:
    """The program with code in place of one of its texts."""
    mark = os.environ.get(MARK, "/nonexistent/mark")
    code = rng.choice((
        f"__import__('os').system('touch {mark}')", f"x=open({mark!r},'w')",
        f"x\n    open({mark!r},'w')\n", f"f'{{open({mark!r},\"w\")}}'",
        "torch.ops.aten.from_file.default", "10**10**10", "os.system",
        json.dumps([1, {"type": "collections.defaultdict", "children_spec": [], "context": json.dumps(
            {"default_factory_module": "this", "default_factory_name": "d", "dict_context": []})}]),
    ))  # fmt: skip
    with (
        zipfile.ZipFile(io.BytesIO(sound_program())) as old,
        zipfile.ZipFile(path, "w") as new,
    ):
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("models/model.json"):
                text = data.decode()
                told = json.loads(text)
                texts = sorted(set(_texts(told)))
                text = text.replace(json.dumps(rng.choice(texts)), json.dumps(code))
                told = json.loads(text)
                if rng.randrange(4) == 0:
                    told["guards_code"] = [code]
                data = as_json(told)
            new.writestr(name, data)


def _texts(data: Any) -> list[str]:
    if isinstance(data, str):
        return [data]
    inner = (
        [*data, *data.values()]
        if isinstance(data, dict)
        else data
        if isinstance(data, list)
        else []
    )
    return [text for item in inner for text in _texts(item)]


# Profiles, devices, configurations


@cache
def _profile() -> str:
    return (DATA / "resnet18.json").read_text("utf-8")


def profile_data(rng: random.Random, folder: Path) -> Path:
    path = folder / "hostile.json"
    path.write_bytes(as_json(wrong(json.loads(_profile()), rng)))
    return path


def profile_bytes(rng: random.Random, folder: Path) -> Path:
    path = folder / "hostile.json"
    path.write_bytes(damaged(_profile().encode(), rng))
    return path


def device_file(rng: random.Random, folder: Path) -> Path:
    path = folder / "hostile.toml"
    source = rng.choice(sorted(FOLDER.glob("*.toml"))).read_text("utf-8")
    if rng.randrange(3) == 0:
        path.write_bytes(damaged(source.encode(), rng))
        return path
    lines = source.splitlines()
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(lines))
        key, sign, _ = lines[at].partition(" = ")
        value = rng.choice(
            ("nan", "inf", "-1", "0", "1e400", str(10**400), "1e-320", "true", '""', "[]", "{}", "[1e12]",
             '[1e12, "nowhere"]', '["x", "y"]', '[nan, "x"]', "1979-05-27", '"' + "x" * 10_000 + '"',
             "[" * 2000, '"\\u001b[31m"', "[1e300, 1e300, 1e300]")
        )  # fmt: skip
        match rng.randrange(4):
            case 0:
                lines[at] = ""
            case 1:
                lines.insert(at, lines[at])
            case 2:
                lines.insert(
                    at, f"{rng.choice(('colour', 'memory', 'a.b', '[x]', '[[vector]]'))} = {value}"
                )
            case _:
                lines[at] = f"{key} = {value}" if sign else value
    path.write_text("\n".join(lines), "utf-8")
    return path


CONFIGURATIONS: tuple[dict[str, Any], ...] = (
    {"model_type": "bert", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
     "intermediate_size": 16, "vocab_size": 99, "architectures": ["BertModel"]},
    {"model_type": "vit", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
     "intermediate_size": 16, "image_size": 32, "patch_size": 16},
    {"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
     "intermediate_size": 16, "vocab_size": 99, "rope_theta": 1e4, "max_position_embeddings": 64,
     "tie_word_embeddings": True, "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16",
     "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                      "high_freq_factor": 4.0, "original_max_position_embeddings": 64}},
    {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 8], "depths": [1, 1],
     "num_channels": 3, "layer_type": "basic", "hidden_act": "relu"},
    {"model_type": "mixtral", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
     "num_key_value_heads": 2, "intermediate_size": 16, "vocab_size": 99, "num_local_experts": 2,
     "quantization_config": {"quant_method": "gptq", "bits": 4}, "auto_map": {"AutoModel": "x.Y"}},
)  # fmt: skip


def configuration(rng: random.Random, folder: Path) -> Path:
    where = folder / "hostile"
    where.mkdir(exist_ok=True)
    data = as_json(wrong(json.loads(json.dumps(rng.choice(CONFIGURATIONS))), rng))
    (where / "config.json").write_bytes(damaged(data, rng) if rng.randrange(5) == 0 else data)
    return where


def _show(path: Path, rng: random.Random) -> None:
    loaded = opgraph.load(path)
    str(loaded)
    view = rng.choice(views_of("costed"))
    render(view.name, loaded.on("h100" if view.needs else None))


def _trace(path: Path, rng: random.Random) -> None:
    str(opgraph.profile(str(path)))


def _predict(path: Path, rng: random.Random) -> None:
    found = device(path)
    render("table", opgraph.load(DATA / "resnet18.json").on(str(path)))
    str(found.ridge_point("float16"))


KINDS: dict[
    str, tuple[Callable[[random.Random, Path], Path], Callable[[Path, random.Random], None]]
] = {
    "profile-data": (profile_data, _show),
    "profile-bytes": (profile_bytes, _show),
    "checkpoint": (checkpoint, _trace),
    "program": (program, _trace),
    "device": (device_file, _predict),
    "configuration": (configuration, _trace),
}
