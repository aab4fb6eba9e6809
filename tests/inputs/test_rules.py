"""Inputs come from the signature and the configuration; what is asked for overrides them."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import pytest
import torch
from torch import nn

import opgraph
from opgraph.api.pipeline import prepared
from opgraph.inputs import InputRequest, TensorSpec, inputs_at, make_inputs
from opgraph.options import Options
from opgraph.record.errors import InputError
from opgraph.sources import BuildOptions, resolve


def shapes(spec: str, request: InputRequest | None = None, **options: Any) -> dict[str, Any]:
    model = resolve(spec, BuildOptions(**options))
    example = make_inputs(model, request)
    names = inspect.signature(model.module.forward).parameters
    values = {**dict(zip(names, example.args, strict=False)), **example.kwargs}
    return {k: tuple(v.shape) for k, v in values.items() if isinstance(v, torch.Tensor)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("resnet18", {"x": (1, 3, 224, 224)}),
        ("r3d_18", {"x": (1, 3, 16, 112, 112)}),
        ("raft_small", {"image1": (1, 3, 512, 512), "image2": (1, 3, 512, 512)}),
        ("gpt2", {"input_ids": (1, 128), "attention_mask": (1, 128)}),
        ("t5-small", {"input_ids": (1, 128), "attention_mask": (1, 128), "decoder_input_ids": (1, 128)}),
        ("openai/whisper-tiny", {"input_features": (1, 80, 3000), "decoder_input_ids": (1, 128)}),
        ("facebook/wav2vec2-base", {"input_values": (1, 153_600)}),
        ("facebook/detr-resnet-50", {"pixel_values": (1, 3, 800, 800)}),
        ("yolov8n", {"x": (1, 3, 640, 640)}),
        ("hf-type:videomae", {"pixel_values": (1, 16, 3, 224, 224)}),
        ("diffusers:unet/sd-1.5", {"sample": (1, 4, 64, 64), "timestep": (1,),
                                   "encoder_hidden_states": (1, 77, 768)}),
        ("diffusers:transformer/wan-2.1-1.3b", {"hidden_states": (1, 16, 21, 60, 104), "timestep": (1,),
                                                "encoder_hidden_states": (1, 512, 4096)}),
    ],
)  # fmt: skip
def test_every_kind_of_model_gets_what_it_takes(spec: str, expected: dict[str, Any]) -> None:
    assert shapes(spec) == expected


def test_token_types_only_where_the_model_tells_them_apart() -> None:
    assert "token_type_ids" in shapes("bert-base-uncased")
    assert "token_type_ids" not in shapes("gpt2")


@pytest.mark.slow
def test_images_have_their_places_in_the_text() -> None:
    model = resolve("llava-hf/llava-1.5-7b-hf")
    example = make_inputs(model, InputRequest(seq_len=16))
    ids = example.kwargs["input_ids"]
    assert int((ids == model.config.image_token_id).sum()) == 576
    assert ids.shape == (1, 16 + 576)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "head", "there", "left"),
    [
        ("hf-type:voxtral", "VoxtralForConditionalGeneration", {"input_ids": 128 + 375}, ""),
        ("hf-type:qwen3_vl", "Qwen3VLForConditionalGeneration", {"input_ids": 128}, "without images"),
        ("hf-type:granite_speech", "GraniteSpeechForConditionalGeneration", {"input_ids": 128},
         "without sound"),
        ("hf-type:idefics", "IdeficsForVisionText2Text", {"pixel_values": 1}, ""),
    ],
)  # fmt: skip
def test_a_head_gets_what_the_model_inside_of_it_takes(
    spec: str, head: str, there: dict[str, int], left: str
) -> None:
    """Also where it only passes on what it is given, or several images are one dimension of the batch."""
    model = resolve(spec, BuildOptions(head=head))
    example = make_inputs(model)
    assert {name: example.kwargs[name].shape[1] for name in there} == there
    assert any(note.startswith(left) for note in example.notes) == bool(left)


@pytest.mark.slow
def test_patches_in_a_row_come_with_their_grid() -> None:
    found = shapes("Qwen/Qwen2-VL-2B-Instruct", InputRequest(image_size=(224, 448), seq_len=8))
    assert found["pixel_values"] == (16 * 32, 3 * 2 * 14 * 14)
    assert found["image_grid_thw"] == (1, 3)
    assert found["input_ids"] == found["mm_token_type_ids"] == (1, 8 + 8 * 16)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (InputRequest(batch_size=2, seq_len=7), (2, 7)),
        (InputRequest(input_shape=(3, 9)), (3, 9)),
    ],
)
def test_sizes_that_are_asked_for_hold_for_all_inputs(
    request_: InputRequest, expected: tuple[int, int]
) -> None:
    assert set(shapes("bert-base-uncased", request_).values()) == {expected}


_IDS = {"input_ids": TensorSpec((1, 9), "int64")}
_MASK = {"attention_mask": TensorSpec((1, 9), "int64")}
_DECODED = {"decoder_input_ids": TensorSpec((1, 9), "int64")}
_IMAGE = {"x": TensorSpec((1, 3, 64, 64))}


@pytest.mark.parametrize(
    ("spec", "request_", "option"),
    [
        ("resnet18", InputRequest(input_shape=(3, 3, 64, 64), batch_size=2), "batch_size"),
        ("resnet18", InputRequest(input_shape=(3, 3, 64, 64), image_size=(64, 32)), "image_size"),
        ("gpt2", InputRequest(input_shape=(3, 9), seq_len=8), "seq_len"),
        (nn.Linear(64, 2), InputRequest(input_shape=(8, 64), batch_size=4), "batch_size"),
        ("gpt2", InputRequest(overrides=_IDS, seq_len=8), "seq_len"),
        ("gpt2", InputRequest(overrides=_IDS, batch_size=4, seq_len=9), "batch_size"),
        ("t5-small", InputRequest(overrides=_IDS, seq_len=5), "seq_len"),
        ("t5-small", InputRequest(overrides=_DECODED, decoder_seq_len=5), "decoder_seq_len"),
        (
            "bert-base-uncased",
            InputRequest(input_shape=(2, 9), overrides=_MASK, batch_size=2),
            "batch_size",
        ),
        ("resnet18", InputRequest(overrides=_IMAGE, image_size=(64, 32)), "image_size"),
    ],
)
def test_a_shape_and_another_size(spec: Any, request_: InputRequest, option: str) -> None:
    with pytest.raises(InputError, match=f"has the {option}"):
        shapes(spec, request_)


@pytest.mark.parametrize(
    ("spec", "request_"),
    [
        ("gpt2", InputRequest(overrides=_IDS, batch_size=1, seq_len=9)),
        ("resnet18", InputRequest(overrides=_IMAGE, batch_size=1, image_size=(64, 64))),
        ("t5-small", InputRequest(overrides=_IDS, decoder_seq_len=5)),
        ("t5-small", InputRequest(overrides=_DECODED, seq_len=5)),
    ],
)
def test_a_shape_and_a_size_that_it_has(spec: str, request_: InputRequest) -> None:
    assert inputs_at(resolve(spec), request_).notes == ()


def test_a_size_that_a_given_shape_takes_the_place_of() -> None:
    request = InputRequest(overrides={"xs": TensorSpec((4, 60))}, batch_size=2)
    with pytest.raises(InputError, match="no effect beside the shape"):
        inputs_at(resolve(_Plain()), request)


class _Plain(nn.Module):
    """Takes an argument of which nothing says what it is."""

    def forward(self, xs: torch.Tensor) -> torch.Tensor:
        return xs + 1


class _Tagger(nn.Module):
    """Takes an argument that no rule knows: `ids`."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.table(ids)
        return found


class _Many(nn.Linear):
    """Takes any number of arguments."""

    def forward(self, *xs: torch.Tensor) -> torch.Tensor:
        return torch.cat([super(_Many, self).forward(x) for x in xs])


def test_a_shape_is_that_of_an_argument_that_is_guessed_too() -> None:
    found = opgraph.profile(_Tagger(), input_shape=(4, 60))
    assert found.graph.values[found.graph.inputs[0]].shape == (4, 60)
    assert [remark.code for remark in found.model.notes] == ["guessed-inputs"]


def test_a_shape_that_no_argument_takes() -> None:
    with pytest.raises(InputError, match="is of no argument"):
        shapes(_Many(8, 4), InputRequest(input_shape=(2, 8)))
    twice = InputRequest(input_shape=(2, 8), overrides={"input": TensorSpec((3, 8))})
    with pytest.raises(InputError, match="twice"):
        shapes(nn.Linear(8, 4), twice)


@pytest.mark.parametrize(
    ("spec", "options", "remarks"),
    [
        ("resnet18", {"seq_len": 12}, ["seq_len changes nothing: resnet18 takes no tokens"]),
        ("resnet18", {"seq_len": 3}, ["seq_len changes nothing: resnet18 takes no tokens"]),
        ("resnet18", {"image_size": 64, "batch_size": 2}, []),
        ("resnet18", {"image_size": 224, "batch_size": 1}, []),
        ("gpt2", {"seq_len": 9}, []),
        ("gpt2", {"seq_len": 128}, []),
        ("gpt2", {"image_size": 32},
         ["image_size changes nothing: gpt2 takes no images of a chosen size"]),
        ("gpt2", {"image_size": 32, "mode": "decode"},
         ["image_size changes nothing: gpt2 takes no images of a chosen size"]),
        ("resnet18", {"seq_len": 9, "input_shape": (1, 3, 64, 64)},
         ["seq_len changes nothing: resnet18 takes no tokens"]),
        ("resnet18", {"seq_len": 9, "input_overrides": {"x": "1x3x64x64"}},
         ["seq_len changes nothing: resnet18 takes no tokens"]),
        ("gpt2", {"decoder_seq_len": 8},
         ["decoder_seq_len changes nothing: gpt2 takes no tokens of a decoder"]),
        ("t5-small", {"seq_len": 8, "decoder_seq_len": 4}, []),
    ],
)  # fmt: skip
def test_a_size_that_changes_nothing_is_remarked(
    spec: str, options: dict[str, Any], remarks: list[str]
) -> None:
    _, example = prepared(spec, options=Options(**options))
    assert [note for note in example.notes if "changes nothing" in note] == remarks


@pytest.mark.parametrize(
    ("options", "remarked"), [({}, ["images of 384x384, as"]), ({"image_size": 64}, [])]
)
def test_a_size_that_only_the_models_type_says_is_remarked(
    options: dict[str, Any], remarked: list[str]
) -> None:
    _, example = prepared("hf-type:resnet", options=Options(**options))
    assert [note[: len("images of 384x384, as")] for note in example.notes] == remarked


@pytest.mark.parametrize("batch_size", [10**20, 2**62])
def test_sizes_beyond_any_tensor(batch_size: int) -> None:
    with pytest.raises(InputError, match="more bytes than"):
        prepared("resnet18", options=Options(batch_size=batch_size))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"batch_size": 0}, "batch_size: 0 is not a whole number"),
        ({"batch_size": -1}, "batch_size: -1 is not"),
        ({"batch_size": "4"}, "batch_size: '4' is not"),
        ({"seq_len": 0}, "seq_len: 0 is not"),
        ({"image_size": (224, 0)}, r"image_size: \(224, 0\) is not an image size"),
        ({"input_shape": "1x3xbanana"}, "input_shape: '1x3xbanana' is not a shape"),
    ],
)
def test_a_size_that_no_input_can_have(options: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        opgraph.profile("resnet18", **options)


def test_a_single_argument_can_be_given() -> None:
    mask = {"attention_mask": TensorSpec((1, 77), "int64")}
    assert shapes("gpt2", InputRequest(overrides=mask))["attention_mask"] == (1, 77)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "given", "says", "hint"),
    [
        ("gpt2", "input_ids=1x9", "input_ids is given as float32, and gpt2 takes int64",
         "--input input_ids=1x9:int64"),
        ("resnet18", "x=1x3x64x64:int64", "x is given as int64, and resnet18 takes float32",
         "--input x=1x3x64x64:float32"),
    ],
)  # fmt: skip
def test_an_input_of_a_dtype_that_the_model_does_not_take(
    spec: str, given: str, says: str, hint: str
) -> None:
    with pytest.raises(InputError, match=says) as raised:
        opgraph.profile(spec, input_overrides=dict([given.split("=")]))
    assert raised.value.hint == hint


class _OfABatch(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(9, 4)
        self.project = torch.nn.Linear(3, 4)

    def forward(self, batch: Any) -> torch.Tensor:
        image, more = batch["image"], batch["more"]
        return self.project(image) + self.words(more["ids"]) + sum(more["boxes"])


_BATCH = {"batch.image": "2x5x3", "batch.more.ids": "2x5:int64", "batch.more.boxes.0": "2x5x4",
          "batch.more.boxes.1": "5x4"}  # fmt: skip


def test_parts_of_an_argument_that_is_a_dictionary_or_a_list_can_be_given() -> None:
    p = opgraph.profile(_OfABatch(), input_overrides=_BATCH)
    given = [p.graph.values[n] for n in p.graph.inputs]
    assert {v.name: "x".join(map(str, v.shape)) for v in given} == {
        name: shape.partition(":")[0] for name, shape in _BATCH.items()
    }
    assert p.totals.flops == 2 * 2 * 5 * 3 * 4
    half = opgraph.profile(_OfABatch(), input_overrides={**_BATCH, "batch.image": "5x3"})
    assert half.totals.flops == p.totals.flops // 2


def test_where_all_that_a_model_takes_is_given_nothing_is_said_to_be_guessed() -> None:
    partly = {name: shape for name, shape in _BATCH.items() if name != "batch.more.ids"}
    p = opgraph.profile(_OfABatch(), input_overrides=partly, partial=True)
    assert "KeyError" in str(p.failure)
    assert "guessed-inputs" not in {remark.code for remark in p.remarks}
    with pytest.raises(InputError, match="names no argument"):
        opgraph.profile(_OfABatch(), input_overrides={"batch..image": "2x3"})


def test_a_list_has_all_of_its_parts_and_none_twice() -> None:
    given = {name: shape for name, shape in _BATCH.items() if name != "batch.more.boxes.0"}
    with pytest.raises(InputError, match=r"batch\.more\.boxes\.0 is not given"):
        opgraph.profile(_OfABatch(), input_overrides=given)
    with pytest.raises(InputError, match="x was given twice"):
        opgraph.profile("resnet18", input_overrides=[("x", "1x3x64x64"), ("x", "1x3x32x32")])


@pytest.mark.parametrize("name", ["batch", "batch.image.left", "batch.more"])
def test_a_part_and_the_whole_are_not_both_given(name: str) -> None:
    for given in ({**_BATCH, name: "1x3"}, {name: "1x3", **_BATCH}):
        with pytest.raises(InputError, match=r"a part of it is given, and the whole"):
            opgraph.profile(_OfABatch(), input_overrides=given)


def test_an_argument_the_model_does_not_take_is_refused() -> None:
    with pytest.raises(InputError, match="takes no argument mask"):
        shapes("resnet18", InputRequest(overrides={"mask": TensorSpec((1,))}))


def test_ids_are_inside_the_vocabulary_and_mean_nothing_special() -> None:
    model = resolve("bert-base-uncased")
    ids = make_inputs(model).kwargs["input_ids"]
    assert int(ids.min()) >= 0
    assert int(ids.max()) < model.config.vocab_size
    assert model.config.pad_token_id not in ids


def test_half_precision_is_for_numbers_alone() -> None:
    example = make_inputs(resolve("resnet18", BuildOptions(dtype="bfloat16")))
    assert example.args[0].dtype is torch.bfloat16


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Linear(5, 2), (1, 5)),
        (nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU()), (1, 4, 224, 224)),
        (nn.LSTM(6, 8, batch_first=True), (1, 128, 6)),
        (nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 2)), (1, 128)),
        (nn.TransformerEncoderLayer(16, 2), (128, 1, 16)),
    ],
)
def test_a_bare_module_gets_what_its_first_layer_takes(module: nn.Module, shape: Any) -> None:
    assert tuple(make_inputs(resolve(module)).args[0].shape) == shape


class _Layer(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, 8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x)
        return x.relu()


class _Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([_Layer(1), _Layer(8)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class _Listener(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = _Layers()

    def forward(self, input_values: torch.Tensor) -> torch.Tensor:
        return self.inside(input_values)


def test_sound_has_a_channel_where_a_convolution_at_the_end_of_a_loop_of_calls_takes_it() -> None:
    profile = opgraph.profile(_Listener())
    assert profile.graph.failed is None
    assert profile.totals.coverage == 1.0
    assert next(iter(profile.graph.values)).shape[:2] == (1, 1)


def test_arguments_that_cannot_be_made_are_named() -> None:
    class Odd(nn.Module):
        def forward(self, left: Any, right: Any) -> Any:
            return left + right

    with pytest.raises(InputError, match="left, right") as caught:
        make_inputs(resolve(Odd()))
    assert "--input left=" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("spec", "option", "most"),
    [("gpt2", "seq_len", 1024), ("openai/whisper-tiny", "decoder_seq_len", 448)],
)
def test_no_longer_than_the_learned_positions(spec: str, option: str, most: int) -> None:
    model = resolve(spec)
    make_inputs(model, InputRequest(**{option: most}))
    with pytest.raises(InputError, match=f"has learned {most:,} positions"):
        make_inputs(model, InputRequest(**{option: most + 1}))


def test_rotary_positions_go_on() -> None:
    example = make_inputs(resolve("meta-llama/Llama-3.2-1B"), InputRequest(seq_len=200_000))
    assert example.kwargs["input_ids"].shape == (1, 200_000)


@pytest.mark.slow
def test_an_encoder_that_is_asked_for_its_places_is_as_before() -> None:
    import transformers

    config = transformers.Blip2Config(
        vision_config={"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1,
                       "num_attention_heads": 2, "image_size": 32, "patch_size": 16},
        qformer_config={"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
                        "intermediate_size": 32, "encoder_hidden_size": 32, "vocab_size": 100},
        text_config={"model_type": "opt", "hidden_size": 32, "ffn_dim": 32, "num_hidden_layers": 1,
                     "num_attention_heads": 2, "vocab_size": 200, "word_embed_proj_dim": 32},
        image_token_index=199, num_query_tokens=4,
    )  # fmt: skip

    class Counting(transformers.Blip2ForConditionalGeneration):
        asked = 0

        def get_image_features(self, pixel_values: torch.Tensor, **named: Any) -> Any:
            self.asked += 1
            self.seen.add_(1)
            type(self).ran = True
            return super().get_image_features(pixel_values, **named)

    model = Counting(config).train()
    model.register_buffer("seen", torch.zeros(1))
    state, numbers = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    parameters = list(map(id, model.parameters()))
    _, example = prepared(model)
    assert model.ran
    assert not [note for note in example.notes if "without images" in str(note)]
    assert model.asked == 0
    assert "asked" not in vars(model)
    assert all(torch.equal(state[name], t) for name, t in model.state_dict().items())
    assert torch.equal(numbers, torch.get_rng_state())
    assert parameters == list(map(id, model.parameters()))


class Further(nn.Module):
    """Takes more by keyword than it has names for."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: Any, **more: Any) -> Any:
        return self.layer(x["image"] if isinstance(x, dict) else x[: more.get("rows")])


@pytest.mark.parametrize(
    ("inputs", "rows"),
    [
        ({"x": torch.zeros(3, 8), "rows": 2}, 2),
        ({"x": torch.zeros(3, 8)}, 3),
        ({"image": torch.zeros(3, 8), "rows": 2}, 3),
    ],
)
def test_a_dictionary_with_a_name_of_forward_s_is_of_keywords(inputs: Any, rows: int) -> None:
    assert opgraph.profile(Further(), inputs).totals.cost.flops == rows * 64


@pytest.mark.parametrize("transform", ["grad", "vmap", "jacrev"])
def test_tensors_of_a_transform_are_refused(transform: str) -> None:
    model, other, plain = nn.Linear(8, 8), nn.Bilinear(8, 8, 8), torch.randn(8, 8)

    def profiled(x: torch.Tensor) -> torch.Tensor:
        for called, given in ((model, x), (other, (plain, x))):
            with pytest.raises(InputError, match=r"tensors of torch\.func"):
                opgraph.profile(called, given)
        return model(x).sum()

    before = model.weight.clone()

    getattr(torch.func, transform)(profiled)(plain)
    assert torch.equal(model.weight, before)
