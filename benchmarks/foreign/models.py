"""Models of packages that nobody tuned opgraph for, at sizes that a laptop runs in a moment: for each a
function that imports its package, and gives the module and the arguments of one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Made = tuple[nn.Module, tuple[Any, ...]]

MODELS: dict[str, tuple[str, Callable[[], Made]]] = {}
"""By name: the package, as the index calls it, and the function."""


def of(package: str) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    """A decorator for a model of a package; its name is the function's."""

    def add(make: Callable[[], Made]) -> Callable[[], Made]:
        MODELS[make.__name__] = (package, make)
        return make

    return add


def image(size: int = 64, batch: int = 1, channels: int = 3) -> torch.Tensor:
    return torch.randn(batch, channels, size, size)


def tokens(length: int = 32, below: int = 100, batch: int = 1) -> torch.Tensor:
    return torch.randint(0, below, (batch, length))


def vit(name: str, **settings: Any) -> Made:
    """A module of vit-pytorch on an image of 64 x 64."""
    from importlib import import_module

    module, _, cls = name.rpartition(".")
    return getattr(import_module(f"vit_pytorch.{module}"), cls)(**settings), (image(),)


VIT: dict[str, Any] = {"image_size": 64, "patch_size": 16, "num_classes": 10, "dim": 64, "depth": 2,
                       "heads": 4, "mlp_dim": 128}  # fmt: skip


@of("openai-whisper")
def whisper() -> Made:
    from whisper.model import ModelDimensions, Whisper

    return Whisper(ModelDimensions(80, 50, 64, 4, 2, 100, 32, 64, 4, 2)), (
        torch.randn(1, 80, 100), tokens(16),
    )  # fmt: skip


@of("open_clip_torch")
def clip() -> Made:
    from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg

    vision = CLIPVisionCfg(layers=2, width=64, head_width=32, patch_size=16, image_size=64)
    text = CLIPTextCfg(context_length=16, vocab_size=100, width=64, heads=2, layers=2)
    return CLIP(64, vision, text), (image(), tokens(16))


@of("open_clip_torch")
def clip_resnet() -> Made:
    from open_clip.modified_resnet import ModifiedResNet

    return ModifiedResNet([1, 1, 1, 1], 64, 4, image_size=64, width=16), (image(),)


@of("vit-pytorch")
def vit_plain() -> Made:
    return vit("vit.ViT", **VIT)


@of("vit-pytorch")
def simple_vit() -> Made:
    return vit("simple_vit.SimpleViT", **VIT)


@of("vit-pytorch")
def deepvit() -> Made:
    return vit("deepvit.DeepViT", **VIT)


@of("vit-pytorch")
def cait() -> Made:
    settings = {k: v for k, v in VIT.items() if k != "depth"}
    return vit("cait.CaiT", **settings, depth=2, cls_depth=1)


@of("vit-pytorch")
def t2t() -> Made:
    return vit("t2t.T2TViT", dim=64, image_size=64, depth=1, heads=4, mlp_dim=128, num_classes=10,
               t2t_layers=((7, 4), (3, 2)))  # fmt: skip


@of("vit-pytorch")
def cct() -> Made:
    return vit("cct.CCT", img_size=64, embedding_dim=64, n_conv_layers=2, num_layers=2, num_heads=4,
               num_classes=10, positional_embedding="learnable", mlp_ratio=2.0)  # fmt: skip


@of("vit-pytorch")
def cross_vit() -> Made:
    return vit("cross_vit.CrossViT", image_size=64, num_classes=10, depth=1, sm_dim=32, sm_patch_size=8,
               sm_enc_depth=1, sm_enc_heads=2, sm_enc_mlp_dim=64, lg_dim=64, lg_patch_size=16,
               lg_enc_depth=1, lg_enc_heads=2, lg_enc_mlp_dim=64, cross_attn_depth=1,
               cross_attn_heads=2)  # fmt: skip


@of("vit-pytorch")
def pit() -> Made:
    return vit("pit.PiT", image_size=64, patch_size=8, dim=32, num_classes=10, depth=(1, 1), heads=2,
               mlp_dim=64)  # fmt: skip


@of("vit-pytorch")
def levit() -> Made:
    return vit("levit.LeViT", image_size=64, num_classes=10, stages=2, dim=(32, 64), depth=1,
               heads=(2, 4), mlp_mult=2)  # fmt: skip


@of("vit-pytorch")
def maxvit() -> Made:
    from vit_pytorch.max_vit import MaxViT

    model = MaxViT(
        num_classes=10, dim_conv_stem=16, dim=16, dim_head=8, depth=(1, 1), window_size=4
    )
    return model, (image(64),)


@of("vit-pytorch")
def mobile_vit() -> Made:
    return vit("mobile_vit.MobileViT", image_size=(64, 64), dims=[16, 24, 32], num_classes=10,
               channels=[8, 8, 16, 16, 24, 24, 32, 32, 40, 40, 64])  # fmt: skip


@of("vit-pytorch")
def nest() -> Made:
    return vit("nest.NesT", image_size=64, patch_size=4, dim=16, heads=2, num_hierarchies=3,
               block_repeats=(1, 1, 2), num_classes=10)  # fmt: skip


@of("vit-pytorch")
def vivit() -> Made:
    from vit_pytorch.vivit import ViViT

    model = ViViT(image_size=32, image_patch_size=8, frames=4, frame_patch_size=2, num_classes=10, dim=32,
                spatial_depth=1, temporal_depth=1, heads=2, mlp_dim=64)  # fmt: skip
    return model, (torch.randn(1, 3, 4, 32, 32),)


@of("vit-pytorch")
def navit() -> Made:
    from vit_pytorch.na_vit import NaViT

    model = NaViT(
        image_size=64, patch_size=16, num_classes=10, dim=32, depth=1, heads=2, mlp_dim=64
    )
    return model, ([[torch.randn(3, 64, 32), torch.randn(3, 32, 32)], [torch.randn(3, 64, 64)]],)


@of("x-transformers")
def x_decoder() -> Made:
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(dim=64, depth=2, heads=4, rotary_pos_emb=True)
    return TransformerWrapper(num_tokens=100, max_seq_len=64, attn_layers=layers), (tokens(),)


@of("x-transformers")
def x_encoder_decoder() -> Made:
    from x_transformers import XTransformer

    model = XTransformer(dim=64, enc_num_tokens=100, enc_depth=1, enc_heads=2, enc_max_seq_len=32,
                         dec_num_tokens=100, dec_depth=1, dec_heads=2, dec_max_seq_len=32)  # fmt: skip
    return model, (tokens(), tokens(16))


@of("x-transformers")
def x_vit() -> Made:
    from x_transformers import Encoder, ViTransformerWrapper

    layers = Encoder(dim=64, depth=2, heads=4, use_rmsnorm=True, ff_glu=True)
    model = ViTransformerWrapper(image_size=64, patch_size=16, num_classes=10, attn_layers=layers)
    return model, (image(),)


def graph(cls: str, *sizes: int, **settings: Any) -> Made:
    import torch_geometric.nn as pyg

    edges = torch.randint(0, 20, (2, 60))
    return getattr(pyg, cls)(*sizes, **settings), (torch.randn(20, 16), edges)


@of("torch_geometric")
def gcn() -> Made:
    return graph("GCN", 16, 32, 2, 4)


@of("torch_geometric")
def gat() -> Made:
    return graph("GAT", 16, 32, 2, 4, heads=2)


@of("torch_geometric")
def graph_sage() -> Made:
    return graph("GraphSAGE", 16, 32, 2, 4)


@of("torch_geometric")
def gin() -> Made:
    return graph("GIN", 16, 32, 2, 4)


@of("torch_geometric")
def graph_unet() -> Made:
    return graph("GraphUNet", 16, 32, 4, depth=2)


@of("torch_geometric")
def schnet() -> Made:
    from torch_geometric.nn import SchNet

    model = SchNet(hidden_channels=32, num_filters=32, num_interactions=2, num_gaussians=10)
    model.interaction_graph = AllPairs()
    return model, (torch.randint(1, 9, (8,)), torch.randn(8, 3))


class AllPairs(nn.Module):
    """Every pair of atoms, which else a compiled extension looks for."""

    def forward(self, pos: torch.Tensor, _batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first, second = torch.combinations(torch.arange(len(pos)), 2).T
        return torch.stack([first, second]), (pos[first] - pos[second]).norm(dim=-1)


def segmentation(cls: str, encoder: str = "resnet18", **settings: Any) -> Made:
    import segmentation_models_pytorch as smp

    return getattr(smp, cls)(encoder, encoder_weights=None, **settings), (image(),)


@of("segmentation-models-pytorch")
def smp_unet() -> Made:
    return segmentation("Unet")


@of("segmentation-models-pytorch")
def smp_unet_plus() -> Made:
    return segmentation("UnetPlusPlus", "mobilenet_v2")


@of("segmentation-models-pytorch")
def smp_deeplab() -> Made:
    return segmentation("DeepLabV3Plus")


@of("segmentation-models-pytorch")
def smp_fpn() -> Made:
    return segmentation("FPN", "efficientnet-b0")


@of("segmentation-models-pytorch")
def smp_segformer() -> Made:
    return segmentation("Segformer", "mit_b0")


@of("monai")
def monai_unet() -> Made:
    from monai.networks.nets import UNet

    model = UNet(spatial_dims=3, in_channels=1, out_channels=2, channels=(8, 16, 32), strides=(2, 2),
                 num_res_units=1)  # fmt: skip
    return model, (torch.randn(1, 1, 32, 32, 32),)


@of("monai")
def monai_swin_unetr() -> Made:
    from monai.networks.nets import SwinUNETR

    model = SwinUNETR(in_channels=1, out_channels=2, feature_size=12, depths=(1, 1, 1, 1),
                      num_heads=(1, 2, 2, 4), spatial_dims=2)  # fmt: skip
    return model, (image(64, channels=1),)


@of("monai")
def monai_unetr() -> Made:
    from monai.networks.nets import UNETR

    model = UNETR(in_channels=1, out_channels=2, img_size=(32, 32, 32), feature_size=8, hidden_size=48,
                  mlp_dim=96, num_heads=4)  # fmt: skip
    return model, (torch.randn(1, 1, 32, 32, 32),)


@of("monai")
def monai_diffusion() -> Made:
    from monai.networks.nets import DiffusionModelUNet

    model = DiffusionModelUNet(spatial_dims=2, in_channels=1, out_channels=1, channels=(8, 16),
                               attention_levels=(False, True), num_res_blocks=1, num_head_channels=8,
                               norm_num_groups=4)  # fmt: skip
    return model, (image(32, channels=1), torch.tensor([3]))


@of("monai")
def monai_segresnet() -> Made:
    from monai.networks.nets import SegResNet

    return SegResNet(init_filters=8, blocks_down=(1, 1), blocks_up=(1,)), (
        torch.randn(1, 1, 16, 16, 16),
    )


@of("pytorch-tabnet")
def tabnet() -> Made:
    from pytorch_tabnet.tab_network import TabNet

    return TabNet(10, 3, group_attention_matrix=torch.eye(10)), (torch.randn(16, 10),)


@of("gpytorch")
def gp_kernel() -> Made:
    import gpytorch

    class Kernel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.kernel(x).to_dense()  # type: ignore[no-any-return]

    return Kernel(), (torch.randn(20, 3),)


@of("gpytorch")
def svgp() -> Made:
    import gpytorch

    class Model(gpytorch.models.ApproximateGP):  # type: ignore[misc]
        def __init__(self) -> None:
            points = torch.randn(8, 3)
            distribution = gpytorch.variational.CholeskyVariationalDistribution(8)
            super().__init__(gpytorch.variational.VariationalStrategy(self, points, distribution))
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    return Model(), (torch.randn(20, 3),)


@of("fair-esm")
def esm2() -> Made:
    from esm.model.esm2 import ESM2

    return ESM2(num_layers=2, embed_dim=40, attention_heads=4), (tokens(32, 30),)


@of("fair-esm")
def esm1() -> Made:
    from argparse import Namespace

    import esm

    alphabet = esm.Alphabet.from_architecture("ESM-1b")
    settings = Namespace(arch="roberta_large", num_layers=2, layers=2, embed_dim=40, ffn_embed_dim=80,
                         attention_heads=4, max_positions=64, emb_layer_norm_before=True,
                         token_dropout=True, logit_bias=True, max_tokens=None,
                         final_bias=True)  # fmt: skip
    return esm.ProteinBertModel(settings, alphabet), (tokens(32, 30),)


@of("e3nn")
def e3_tensor_product() -> Made:
    from e3nn import o3

    product = o3.FullyConnectedTensorProduct("4x0e + 4x1o", "4x0e + 4x1o", "4x0e + 4x1o")
    return product, (torch.randn(5, 16), torch.randn(5, 16))


@of("e3nn")
def e3_linear_gate() -> Made:
    from e3nn import nn as enn
    from e3nn import o3

    gate = enn.Gate("4x0e", [torch.relu], "2x0e", [torch.sigmoid], "2x1o")
    return nn.Sequential(o3.Linear("4x0e + 4x1o", gate.irreps_in), gate), (torch.randn(5, 16),)


@of("kornia")
def hardnet() -> Made:
    from kornia.feature import HardNet

    return HardNet(pretrained=False), (image(32, channels=1, batch=4),)


@of("kornia")
def kornia_tinyvit() -> Made:
    from kornia.models.tiny_vit import TinyViT

    return TinyViT(img_size=64, num_classes=10, embed_dims=[16, 32, 32, 64], depths=[1, 1, 1, 1],
                   num_heads=[1, 2, 2, 4], window_sizes=[4, 4, 4, 2]), (image(64),)  # fmt: skip


@of("segment-anything")
def sam() -> Made:
    from segment_anything.modeling import ImageEncoderViT

    model = ImageEncoderViT(img_size=128, embed_dim=64, depth=2, num_heads=4, out_chans=32,
                            use_rel_pos=True, window_size=4, global_attn_indexes=(1,))  # fmt: skip
    return model, (image(128),)


@of("segment-anything")
def sam_decoder() -> Made:
    from segment_anything.modeling import MaskDecoder, TwoWayTransformer

    transformer = TwoWayTransformer(depth=1, embedding_dim=32, mlp_dim=64, num_heads=2)
    decoder = MaskDecoder(transformer_dim=32, transformer=transformer)
    dense = torch.randn(1, 32, 8, 8)
    return decoder, (dense, dense, torch.randn(1, 2, 32), dense, True)


@of("rotary-embedding-torch")
def rotary() -> Made:
    from rotary_embedding_torch import RotaryEmbedding

    class Rotated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rotary, self.proj = RotaryEmbedding(dim=8), nn.Linear(32, 96)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.proj(x).view(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
            q, k = self.rotary.rotate_queries_or_keys(q), self.rotary.rotate_queries_or_keys(k)
            return nn.functional.scaled_dot_product_attention(q, k, v)

    return Rotated(), (torch.randn(1, 16, 32),)


@of("tab-transformer-pytorch")
def ft_transformer() -> Made:
    from tab_transformer_pytorch import FTTransformer

    model = FTTransformer(categories=(10, 5), num_continuous=4, dim=32, depth=2, heads=4)
    return model, (torch.randint(0, 5, (8, 2)), torch.randn(8, 4))


@of("perceiver-pytorch")
def perceiver() -> Made:
    from perceiver_pytorch import Perceiver

    model = Perceiver(num_freq_bands=4, depth=2, max_freq=10.0, input_channels=3, num_latents=16,
                      latent_dim=32, latent_dim_head=8, cross_dim_head=8, num_classes=10,
                      latent_heads=2)  # fmt: skip
    return model, (torch.randn(1, 16, 16, 3),)


@of("perceiver-pytorch")
def perceiver_io() -> Made:
    from perceiver_pytorch import PerceiverLM

    return PerceiverLM(num_tokens=100, dim=32, depth=1, max_seq_len=64, num_latents=16, latent_dim=32,
                       latent_dim_head=8, cross_dim_head=8, latent_heads=2), (tokens(),)  # fmt: skip


@of("performer-pytorch")
def performer() -> Made:
    from performer_pytorch import PerformerLM

    return PerformerLM(num_tokens=100, max_seq_len=64, dim=64, depth=2, heads=4, dim_head=16), (
        tokens(64),
    )


@of("linformer")
def linformer() -> Made:
    from linformer import Linformer

    return Linformer(dim=64, seq_len=64, depth=2, heads=4, k=16), (torch.randn(1, 64, 64),)


@of("efficientnet_pytorch")
def efficientnet() -> Made:
    from efficientnet_pytorch import EfficientNet

    return EfficientNet.from_name("efficientnet-b0", num_classes=10), (image(),)


@of("pretrainedmodels")
def se_resnet() -> Made:
    from pretrainedmodels.models.senet import SENet, SEResNetBottleneck

    return SENet(SEResNetBottleneck, [1, 1, 1, 1], 1, 16, dropout_p=None, inplanes=64,
                 input_3x3=False, downsample_kernel_size=1, downsample_padding=0,
                 num_classes=10), (image(224),)  # fmt: skip


@of("pretrainedmodels")
def bninception() -> Made:
    from pretrainedmodels import bninception

    return bninception(num_classes=10, pretrained=None), (image(224),)


@of("torchdiffeq")
def neural_ode() -> Made:
    from torchdiffeq import odeint

    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))

        def forward(self, _t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.net(y)  # type: ignore[no-any-return]

    class Solved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.field = Field()

        def forward(self, y: torch.Tensor) -> torch.Tensor:
            times = torch.linspace(0.0, 1.0, 5)
            return odeint(self.field, y, times, method="rk4")  # type: ignore[no-any-return]

    return Solved(), (torch.randn(8, 2),)


@of("torchdiffeq")
def adaptive_ode() -> Made:
    from torchdiffeq import odeint

    solved, arguments = neural_ode()

    class Adaptive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.field = solved.field

        def forward(self, y: torch.Tensor) -> torch.Tensor:
            return odeint(self.field, y, torch.tensor([0.0, 1.0]))  # type: ignore[no-any-return]

    return Adaptive(), arguments


@of("stable-baselines3")
def ppo_policy() -> Made:
    from gymnasium.spaces import Box, Discrete
    from stable_baselines3.common.policies import ActorCriticPolicy

    policy = ActorCriticPolicy(Box(-1.0, 1.0, (8,)), Discrete(4), lambda _: 1e-3)
    return policy, (torch.randn(4, 8), True)


@of("stable-baselines3")
def dqn_policy() -> Made:
    from gymnasium.spaces import Box, Discrete
    from stable_baselines3.dqn.policies import CnnPolicy

    space = Box(0, 255, (4, 84, 84), dtype="uint8")
    policy = CnnPolicy(space, Discrete(4), lambda _: 1e-3)
    return policy.q_net, (torch.randint(0, 255, (1, 4, 84, 84), dtype=torch.uint8),)


@of("vector-quantize-pytorch")
def residual_vq() -> Made:
    from vector_quantize_pytorch import ResidualVQ

    return ResidualVQ(dim=16, num_quantizers=2, codebook_size=32), (torch.randn(1, 20, 16),)


@of("vector-quantize-pytorch")
def fsq() -> Made:
    from vector_quantize_pytorch import FSQ

    return nn.Sequential(nn.Linear(8, 4), FSQ([8, 5, 5, 5])), (torch.randn(1, 20, 8),)


@of("reformer-pytorch")
def reformer() -> Made:
    from reformer_pytorch import ReformerLM

    model = ReformerLM(num_tokens=100, dim=32, depth=1, max_seq_len=64, heads=2, bucket_size=16, n_hashes=2,
                       causal=True)  # fmt: skip
    return model, (tokens(64),)


@of("conformer")
def conformer() -> Made:
    from conformer import Conformer

    return Conformer(dim=32, depth=2, dim_head=8, heads=4, conv_kernel_size=15), (
        torch.randn(1, 40, 32),
    )


@of("lambda-networks")
def lambda_layer() -> Made:
    from lambda_networks import LambdaLayer

    return LambdaLayer(dim=32, dim_out=32, r=7, dim_k=8, heads=4), (image(16, channels=32),)


@of("g-mlp-pytorch")
def g_mlp() -> Made:
    from g_mlp_pytorch import gMLP

    return gMLP(num_tokens=100, dim=32, depth=2, seq_len=32), (tokens(),)


@of("mlp-mixer-pytorch")
def mixer() -> Made:
    from mlp_mixer_pytorch import MLPMixer

    return MLPMixer(image_size=64, channels=3, patch_size=16, dim=64, depth=2, num_classes=10), (
        image(),
    )


@of("nystrom-attention")
def nystromformer() -> Made:
    from nystrom_attention import Nystromformer

    return Nystromformer(dim=32, depth=2, dim_head=8, heads=4, num_landmarks=8), (
        torch.randn(1, 64, 32),
    )


@of("timesformer-pytorch")
def timesformer() -> Made:
    from timesformer_pytorch import TimeSformer

    model = TimeSformer(dim=32, image_size=32, patch_size=8, num_frames=4, num_classes=10, depth=1,
                        heads=2, dim_head=16)  # fmt: skip
    return model, (torch.randn(1, 4, 3, 32, 32),)


@of("egnn-pytorch")
def egnn() -> Made:
    from egnn_pytorch import EGNN

    return EGNN(dim=16), (torch.randn(1, 12, 16), torch.randn(1, 12, 3))


@of("siren-pytorch")
def siren() -> Made:
    from siren_pytorch import SirenNet

    return SirenNet(dim_in=2, dim_hidden=32, dim_out=3, num_layers=3), (torch.randn(64, 2),)


@of("soft-moe-pytorch")
def soft_moe() -> Made:
    from soft_moe_pytorch import SoftMoE

    return SoftMoE(dim=32, seq_len=16, num_experts=4), (torch.randn(1, 16, 32),)


@of("st-moe-pytorch")
def st_moe() -> Made:
    from st_moe_pytorch import MoE

    return MoE(dim=32, num_experts=4, gating_top_n=2), (torch.randn(1, 16, 32),)


@of("mixture-of-experts")
def mixture() -> Made:
    from mixture_of_experts import MoE

    return MoE(dim=32, num_experts=4), (torch.randn(1, 16, 32),)


@of("ncps")
def liquid() -> Made:
    from ncps.torch import CfC

    return CfC(8, 16), (torch.randn(2, 10, 8),)


@of("ncps")
def liquid_wired() -> Made:
    from ncps.torch import LTC
    from ncps.wirings import AutoNCP

    return LTC(4, AutoNCP(8, 2)), (torch.randn(2, 5, 4),)


@of("pytorch-tcn")
def tcn() -> Made:
    from pytorch_tcn import TCN

    return TCN(num_inputs=8, num_channels=[16, 16]), (torch.randn(2, 8, 40),)


@of("rtdl_revisiting_models")
def tabular_resnet() -> Made:
    from rtdl_revisiting_models import ResNet

    model = ResNet(d_in=10, d_out=2, n_blocks=2, d_block=32, d_hidden=None, d_hidden_multiplier=2.0,
                   dropout1=0.1, dropout2=0.0)  # fmt: skip
    return model, (torch.randn(16, 10),)


@of("rtdl_num_embeddings")
def periodic_embeddings() -> Made:
    from rtdl_num_embeddings import PeriodicEmbeddings

    return nn.Sequential(PeriodicEmbeddings(6, lite=False), nn.Flatten(), nn.Linear(144, 2)), (
        torch.randn(16, 6),
    )


@of("facenet-pytorch")
def inception_resnet() -> Made:
    from facenet_pytorch import InceptionResnetV1

    return InceptionResnetV1(classify=True, num_classes=10), (image(160),)


@of("facenet-pytorch")
def pnet() -> Made:
    from facenet_pytorch.models.mtcnn import PNet

    return PNet(pretrained=False), (image(48),)


@of("normflows")
def real_nvp() -> Made:
    import normflows as nf

    flows: list[nn.Module] = []
    for _ in range(2):
        flows += [nf.flows.AffineCouplingBlock(nf.nets.MLP([1, 16, 16, 2])), nf.flows.Permute(2)]
    return nf.NormalizingFlow(nf.distributions.base.DiagGaussian(2), flows), (torch.randn(8, 2),)


@of("nflows")
def autoregressive_flow() -> Made:
    from nflows.transforms.autoregressive import MaskedAffineAutoregressiveTransform

    return MaskedAffineAutoregressiveTransform(features=4, hidden_features=16), (torch.randn(8, 4),)


@of("spandrel")
def esrgan() -> Made:
    from spandrel.architectures.ESRGAN import ESRGAN

    return ESRGAN(num_filters=16, num_blocks=1, scale=2), (image(32),)


@of("spandrel")
def swin_ir() -> Made:
    from spandrel.architectures.SwinIR import SwinIR

    model = SwinIR(img_size=32, embed_dim=24, depths=[2], num_heads=[2], window_size=8, upscale=2,
                   upsampler="pixelshuffle")  # fmt: skip
    return model, (image(32),)


@of("spandrel")
def compact() -> Made:
    from spandrel.architectures.Compact.__arch.SRVGG import SRVGGNetCompact

    return SRVGGNetCompact(num_feat=16, num_conv=4, upscale=2), (image(32),)


@of("neuraloperator")
def fno() -> Made:
    from neuralop.models import FNO

    return FNO(n_modes=(8, 8), hidden_channels=16, in_channels=1, out_channels=1, n_layers=2), (
        image(32, channels=1),
    )


@of("mambapy")
def mamba() -> Made:
    from mambapy.mamba import Mamba, MambaConfig

    return Mamba(MambaConfig(d_model=32, n_layers=2)), (torch.randn(1, 32, 32),)


@of("pytorchvideo")
def slow_fast() -> Made:
    from pytorchvideo.models.resnet import create_resnet

    model = create_resnet(model_depth=50, model_num_class=10, stem_dim_out=16, norm=nn.BatchNorm3d,
                          head_pool_kernel_size=(4, 2, 2))  # fmt: skip
    return model, (torch.randn(1, 3, 4, 64, 64),)


@of("torchcde")
def neural_cde() -> Made:
    import torchcde

    class Solved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.func = Field()

        def forward(self, coefficients: torch.Tensor, z0: torch.Tensor) -> torch.Tensor:
            path = torchcde.CubicSpline(coefficients)
            how = {"method": "rk4", "options": {"step_size": 1.0}}
            return torchcde.cdeint(path, self.func, z0, path.interval, **how)  # type: ignore[no-any-return]

    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(4, 12)

        def forward(self, _t: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
            return self.net(z).tanh().view(*z.shape[:-1], 4, 3)  # type: ignore[no-any-return]

    import torchcde as cde

    coefficients = cde.hermite_cubic_coefficients_with_backward_differences(torch.randn(2, 6, 3))
    return Solved(), (coefficients, torch.randn(2, 4))


@of("lpips")
def perceptual_distance() -> Made:
    from lpips import LPIPS

    return LPIPS(net="squeeze", pretrained=False, pnet_rand=True, verbose=False), (image(), image())
