"""Where does the time go, and what becomes of it in another layout? ResNet-18 on one core, twice."""

from __future__ import annotations

import torch
import torchvision

import opgraph


def main() -> None:
    torch.set_num_threads(1)
    model, image = torchvision.models.resnet18().eval(), torch.randn(1, 3, 224, 224)
    before = opgraph.measure(model, image, device="cpu", steps=15)
    last = torch.channels_last
    after = opgraph.measure(
        model.to(memory_format=last), image.to(memory_format=last), device="cpu", steps=15
    )
    for found in (before, after):
        print(repr(found))
        for op, row in found.by_op().items():
            if row.measured:
                print(f"  {op:20} {1e3 * row.measured:7.1f} ms")
    print(opgraph.compare(before, after, fail_if="measured > +5%"))


if __name__ == "__main__":
    main()
