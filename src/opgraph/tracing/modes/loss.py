"""The loss of a step of training: which one a model is trained with, and labels for it.

A model's own loss comes first: what it returns when its forward gets labels (transformers, torchvision's
detectors), or what it has a criterion for (Ultralytics). Else what it returns says which loss its field
takes: cross-entropy for logits, others for masks, depths and flows. Labels are of the sizes that matter;
what they say does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from opgraph.record.errors import InputError, TraceError
from opgraph.tracing.base import bound, taken
from opgraph.tracing.capture.values import tensors_in

LossFunction = Callable[[Any], Tensor]
"""From what a model returns to one number."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss, its name, what it is in words, and the arguments that the forward gets for it. `guessed`
    losses were found by opgraph: where one fails, another may do."""

    name: str
    says: str
    of: LossFunction
    arguments: Mapping[str, Any] = field(default_factory=dict)
    guessed: bool = False

    @property
    def is_own(self) -> bool:
        """Whether the model computes it."""
        return self.name == _OWN


def is_auto(asked: str | LossFunction) -> bool:
    """Whether a loss is to be found; a function that is one is not asked what it equals."""
    return isinstance(asked, str) and asked == "auto"


def loss_for(
    module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], asked: str | LossFunction
) -> Loss | None:
    """The loss that is asked for: "auto", "cross-entropy", "sum", or a function of the result. None where
    what the model returns has to say (see `loss_of`)."""
    if callable(asked):
        return Loss("given", "the loss given", partial(_given, asked))
    if asked != "auto":
        return _ASKED.get(asked) or _LOSSES[asked]
    call = bound(module, args, kwargs)
    found = (find(module, call) for find in (_labelled, _detected, _batched))
    return next((loss for loss in found if loss is not None), None)


def _given(function: LossFunction, result: Any) -> Tensor:
    """The loss by a function of a person's own, which has to be one number to be differentiated."""
    loss: Any = function(result)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        found = "x".join(map(str, loss.shape)) if isinstance(loss, Tensor) else type(loss).__name__
        raise InputError(f"loss has to give one number in a tensor, and gave {found}")
    if not loss.requires_grad:
        raise InputError("what loss gives does not depend on the weights of the model")
    return loss


def loss_of(result: Any) -> Loss:
    """The loss of what a model returns: its own, what its field takes for such results, else the sum."""
    if _own(result) is not None:
        return Loss(_OWN, "the model's own loss", _returned)
    return next((_LOSSES[name] for name, held in _HELD.items() if held(result)), _LOSSES["sum"])


def _labelled(module: nn.Module, call: Mapping[str, Any]) -> Loss | None:
    """The loss that a forward returns when it is given labels, in the order and shapes of transformers."""
    names = taken(module)
    given = [n for n in call if n in _LABELS and call[n] is not None]
    if given:
        says = f"the model's own loss, with the {', '.join(given)} that were given"
        return Loss(_OWN, says, _returned)
    made = _labels(module, names, call)
    if not made:
        return None
    named = ", ".join(n for n in made if n != _ASKS)
    says = "the model's own loss" + (named and f", with {named} made here")
    return Loss(_OWN, says, _returned, made, guessed=True)


_ASKS = "return_loss"
"""What models of pairs (CLIP) are asked by for their loss, which needs no labels."""


def has_loss(module: nn.Module) -> bool:
    """Whether a model of transformers returns a loss when it gets labels, or is asked for it."""
    names = taken(module)
    return any(n in names for n in ("labels", "mask_labels", _ASKS))


_LABELS = ("labels", "targets", "start_positions")


def _labels(
    module: nn.Module, taken: Iterable[str], call: Mapping[str, Any]
) -> dict[str, Any] | None:
    # Transformers' models say what their head is for, or are named for it; others take a token for each.
    named = "".join(type(module).__name__.partition("For")[1:])
    kind: str = getattr(module, "loss_type", None) or named
    ids = next((call[n] for n in _TOKENS if isinstance(call.get(n), Tensor)), None)
    first = next((t for t in tensors_in(list(call.values()))), None)
    if first is None or not hasattr(module, "config"):
        return None
    batch = first.shape[0]
    if "QuestionAnswering" in kind and "start_positions" in taken:
        return {n: torch.zeros(batch, dtype=torch.int64) for n in _SPAN}
    if _ASKS in taken:
        return {_ASKS: True}
    if "mask_labels" in taken:
        masks = [torch.ones(1, *first.shape[-2:]) for _ in range(batch)]
        return {"mask_labels": masks, "class_labels": [_ONE] * batch}
    if "labels" not in taken:
        return None
    if kind.endswith("ObjectDetection"):
        if ids is None:
            return {"labels": [_boxes("class_labels") for _ in range(batch)]}
        # Classes are phrases of the text, each behind a special token: one, behind that of padding.
        text = torch.ones_like(ids)
        text[:, 0] = 0
        things = [{**_boxes("class_labels"), "class_labels": _ONE} for _ in range(batch)]
        return {"labels": things, "input_ids": text}
    if kind.endswith("SemanticSegmentation"):
        return {"labels": torch.zeros(batch, *first.shape[-2:], dtype=torch.int64)}
    if kind.endswith(_WHOLE) and "Token" not in kind:
        alone = getattr(module.config, "num_labels", 2) == 1
        return {"labels": torch.zeros(batch, dtype=torch.float32 if alone else torch.int64)}
    if kind == "ForCTC":
        return {"labels": torch.ones(batch, _SPOKEN, dtype=torch.int64)}
    if ids is None:
        return None
    order = {n: torch.zeros(batch, dtype=torch.int64) for n in _ORDER if n in taken}
    return {"labels": ids.clone(), **order}


_TOKENS = ("decoder_input_ids", "input_ids")
_SPAN = ("start_positions", "end_positions")
_WHOLE = ("Classification", "NextSentencePrediction", "MultipleChoice")
"""Heads with one label for a whole text, image or sound."""
_ORDER = ("next_sentence_label", "sentence_order_label")
"""Labels of a text besides those of its tokens."""
_SPOKEN = 16
"""Letters of a spoken example: fewer than any audio that is made has frames."""


_ONE = torch.zeros(1, dtype=torch.int64)
"""The first class, of one thing."""


def _boxes(labels: str, **more: Tensor) -> dict[str, Tensor]:
    """One thing in the upper left of an image."""
    corner = torch.tensor([[0.25, 0.25, 0.5, 0.5]])
    return {"boxes": corner, labels: torch.ones(1, dtype=torch.int64), **more}


def _detected(module: nn.Module, call: Mapping[str, Any]) -> Loss | None:
    """The losses of torchvision's detectors, whose forward takes `images` and `targets`."""
    names = list(taken(module))
    images = call.get("images")
    if names[:2] != ["images", "targets"] or not isinstance(images, (list, tuple, Tensor)):
        return None
    targets = []
    heads = getattr(module, "roi_heads", None)
    for image in images:
        height, width = image.shape[-2:]
        more = {}
        if getattr(heads, "mask_head", None) is not None:
            more["masks"] = torch.ones(1, height, width, dtype=torch.uint8)
        if getattr(heads, "keypoint_head", None) is not None:
            more["keypoints"] = torch.tensor([[[width * 0.3, height * 0.3, 1.0]] * 17])
        target = _boxes("labels", **more)
        targets.append({**target, "boxes": target["boxes"] * torch.tensor([width, height] * 2)})
    return Loss(
        _OWN,
        "the model's own losses, with targets made here",
        _summed,
        {"targets": targets},
        guessed=True,
    )


def _is_of_ultralytics(module: nn.Module) -> bool:
    """Whether a model is of a class of that package, or of one below."""
    return any(cls.__module__.partition(".")[0] == "ultralytics" for cls in type(module).__mro__)


def _batched(module: nn.Module, call: Mapping[str, Any]) -> Loss | None:
    """The loss of Ultralytics' models: what their forward returns for a batch, that is images with what is
    to be seen on them. Which of that is read, their heads say."""
    make = getattr(module, "init_criterion", None)
    name, image = next(((n, t) for n, t in call.items() if isinstance(t, Tensor)), ("", None))
    if not callable(make) or image is None or not _is_of_ultralytics(module):
        return None
    from ultralytics.cfg import get_cfg

    settings = getattr(module, "args", None)
    if not hasattr(settings, "box"):
        module.args = get_cfg(overrides=settings if isinstance(settings, dict) else None)
    parts: Any = module.model
    head = parts[-1]
    if not hasattr(module, "nc"):
        module.nc = getattr(head, "nc", None)
    criterion = module.criterion = make()
    batch, _, height, width = image.shape
    small = torch.zeros(batch, height // 4, width // 4, dtype=torch.int64)
    turned = [0.1] if hasattr(head, "ne") else []
    truth = {
        "img": image, "batch_idx": torch.arange(batch),
        "cls": torch.zeros(batch, dtype=torch.int64),
        "bboxes": torch.tensor([[0.5, 0.5, 1.0, 1.0, *turned]] * batch),
    }  # fmt: skip
    if hasattr(head, "proto"):
        truth |= {"masks": small + 1, "sem_masks": small}
    if type(criterion).__name__ == "SemanticSegmentationLoss":
        truth["semantic_mask"] = torch.zeros(batch, height, width, dtype=torch.int64)
    if hasattr(head, "kpt_shape"):
        truth["keypoints"] = torch.full((batch, *head.kpt_shape), 0.5)
    return Loss(
        _OWN,
        "the model's own criterion, with what is on its images made here",
        lambda result: result[0].sum(),
        {name: truth},
        guessed=True,
    )


# From what a model returns to one number.

_OWN = "the model's own"


def _own(result: Any) -> Tensor | None:
    """The loss that a model returns, if it does: what is called so, or one number alone."""
    loss = result.get("loss") if isinstance(result, Mapping) else getattr(result, "loss", result)
    named = loss is not result or _is_number(result)
    return loss if named and isinstance(loss, Tensor) and loss.requires_grad else None


def _is_number(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() == 0


def _returned(result: Any) -> Tensor:
    """The loss of a model that was given labels: the only number that it returns where none is named, or
    all of them added up where it returns nothing but named numbers."""
    loss = _own(result)
    if loss is None and isinstance(result, Mapping) and all(map(_is_number, result.values())):
        return _summed(result)
    every = [t for t in tensors_in(result) if _is_number(t)]
    numbers = [t for t in every if t.requires_grad]
    if loss is None and every and not numbers:
        raise TraceError("the loss that the model returns depends on no weight that is trained")
    if loss is None and len(numbers) != 1:
        raise TraceError(
            'the model was given labels, and returns no loss; loss="sum" takes the sum of it'
        )
    return numbers[0] if loss is None else loss


def _cross_entropy(result: Any) -> Tensor:
    """The cross-entropy of all logits of a result, added up."""
    found = _logits(result) or _scores(result)
    if not found:
        raise TraceError('what the model returns holds no logits; loss="sum" takes the sum of it')
    return _added(_held_against_labels(logits) for logits in found)


def _held_against_labels(logits: Tensor) -> Tensor:
    """Logits [batch, classes], [batch, tokens, classes] or [batch, classes, height, width, …]."""
    if logits.dim() == 3:
        logits = logits.flatten(0, 1)
    labels = _truth(logits, (logits.shape[0], *logits.shape[2:]), torch.int64)
    return functional.cross_entropy(logits, labels)


def _truth(
    result: Tensor, shape: tuple[int, ...] | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """What a result is held against, which nothing computes: where it is, and of its shape and dtype unless
    others are given."""
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        return torch.zeros(
            result.shape if shape is None else shape,
            dtype=dtype or result.dtype,
            device=result.device,
        )


def _logits(result: Any) -> list[Tensor]:
    """What of a result is logits: what is called so, a matrix [batch, classes], and maps of classes."""
    named = getattr(result, "logits", None)
    if isinstance(named, Tensor) and not isinstance(result, tuple):
        return [named] if named.requires_grad and named.dim() in (2, 3, 4) else []
    if isinstance(result, Mapping):  # torchvision's segmentation: "out" and "aux"
        maps = [result[n] for n in ("out", "aux") if n in result]
        return [t for t in maps if isinstance(t, Tensor) and t.dim() == 4 and t.requires_grad]
    tensors = tensors_in(result)
    classes = all(
        t.dim() == 2 and t.shape[1] > 1 and t.requires_grad and not t.is_complex() for t in tensors
    )
    return tensors if tensors and classes else []


def _scores(result: Any) -> list[Tensor]:
    """What of a result can be logits where somebody says that it holds some."""
    tensors = tensors_in(result)
    fit = all(t.dim() > 1 and t.requires_grad and not t.is_complex() for t in tensors)
    return tensors if fit else []


def _called(name: str, result: Any) -> list[Tensor]:
    """What of a result is called so."""
    tensor = getattr(result, name, None)
    return [tensor] if isinstance(tensor, Tensor) and tensor.requires_grad else []


def _flows(result: Any) -> list[Tensor]:
    """Flows [batch, 2, height, width] of one size, each an improvement of the one before."""
    flows = tensors_in(result) if isinstance(result, (list, tuple)) else []
    alike = {(t.dim(), t.shape[1:]) for t in flows}
    same = len(flows) > 1 and len(alike) == 1 and flows[0].dim() == 4 and flows[0].shape[1] == 2
    return flows if same and all(t.requires_grad for t in flows) else []


def _overlap(result: Any) -> Tensor:
    """Binary cross-entropy of masks [..., height, width], and 1 less twice what both share over their sum
    (Milletari et al., "V-Net", 2016); the square error of what a model says of their overlap (Kirillov et
    al., "Segment Anything", 2023)."""
    logits = result.pred_masks.flatten(-2)
    truth, masks = _truth(logits), logits.sigmoid()
    dice = 1 - (2 * (masks * truth).sum(-1) + 1) / (masks.sum(-1) + truth.sum(-1) + 1)
    crossed = functional.binary_cross_entropy_with_logits(logits, truth)
    said = [functional.mse_loss(t, _truth(t)) for t in _called("iou_scores", result)]
    return _added([crossed, dice.mean(), *said])


def _up_to_scale(result: Any) -> Tensor:
    """Differences of the logarithms of depths: their mean square, less half of their squared mean (Eigen et
    al., "Depth Map Prediction from a Single Image", 2014, equation 4)."""
    depth = result.predicted_depth
    away = depth.clamp(min=1e-3).log() - _truth(depth)
    return away.square().mean() - away.mean().square() / 2


def _in_sequence(result: Any) -> Tensor:
    """Absolute errors of flows, the last of them whole, each before it by 0.8 less (Teed and Deng, "RAFT",
    2020, equation 7)."""
    flows = _flows(result)
    truth = _truth(flows[0])
    return _added(
        0.8 ** (len(flows) - n) * (f - truth).abs().mean() for n, f in enumerate(flows, 1)
    )


def _summed(result: Any) -> Tensor:
    found = (part for t in tensors_in(result) if t.requires_grad for part in _strided(t))
    sums = [(torch.view_as_real(t) if t.is_complex() else t).sum() for t in found]
    if not sums:
        raise TraceError("nothing that the model returns depends on its weights")
    return _added(sums)


def _strided(tensor: Tensor) -> tuple[Tensor, ...]:
    """The tensors that are nested in one that torch does not add up."""
    return tensor.unbind() if tensor.is_nested and tensor.layout is torch.strided else (tensor,)


def _added(parts: Iterable[Tensor]) -> Tensor:
    return reduce(Tensor.__add__, parts)


def _own_or_summed(result: Any) -> Tensor:
    loss = _own(result)
    return _summed(result) if loss is None else loss


_HELD: Mapping[str, Callable[[Any], list[Tensor]]] = {
    "cross-entropy": _logits, "dice": partial(_called, "pred_masks"),
    "scale-invariant": partial(_called, "predicted_depth"), "sequence L1": _flows,
}  # fmt: skip
"""What of a result each loss is of."""

_LOSSES = {
    "cross-entropy": Loss(
        "cross-entropy", "cross-entropy of its logits, with labels made here", _cross_entropy
    ),
    "dice": Loss("dice", "cross-entropy and dice of its masks, with masks made here", _overlap),
    "scale-invariant": Loss(
        "scale-invariant",
        "the scale-invariant loss of its depths, with depths made here",
        _up_to_scale,
    ),
    "sequence L1": Loss(
        "sequence L1", "absolute errors of its flows in turn, with a flow made here", _in_sequence
    ),
    "sum": Loss("sum", "the sum of what the model returns", _own_or_summed),
}

_ASKED = {
    "cross-entropy": replace(
        _LOSSES["cross-entropy"],
        says="cross-entropy of its logits (classes are last in three dimensions, else second), with "
        "labels made here",
    )
}
"""Losses that are asked for where nothing but their name says what they are of."""
