// Devices: what a machine can do at most, and from that what a kernel takes on it.

import { clean, type DeviceJson } from "./document";

export interface Device {
  id: string;
  name: string;
  vendor: string;
  kind: string;
  figures: Record<string, number>;
}

export function readDevices(json: DeviceJson[] | undefined): Device[] {
  return (json ?? []).map((d) => ({ id: clean(d.id), name: clean(d.name), vendor: clean(d.vendor), kind: clean(d.kind), figures: d.figures }));
}
