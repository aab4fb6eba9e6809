"""Devices and their figures. Nothing here imports torch, but for calibration when it is asked for."""

from opgraph.hardware.devices import Device, Figure, UnknownDevice, cluster, device, devices

__all__ = ["Device", "Figure", "UnknownDevice", "cluster", "device", "devices"]
