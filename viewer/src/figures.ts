// A model with its figures and colours: on a device or none, at the profiled sizes or others, coloured in
// one of the ways, light or dark.

import { Costs } from "./data/costs";
import { heaviest, heaviestPath, weights } from "./data/dearest";
import { type Device, mainDtype } from "./data/devices";
import { Difference } from "./data/difference";
import type { PageJson, WorkJson } from "./data/document";
import { Fusion } from "./data/fusion";
import type { Model } from "./data/model";
import { Memory } from "./data/memory";
import { COLOUR_MODES, type ColourMode } from "./draw/categories";
import { Colours } from "./draw/colours";
import { DARK, LIGHT, type Theme } from "./draw/theme";
import { Events } from "./events";

export type AppEvent = "scene" | "select" | "look" | "lit" | "camera" | "hover" | "search" | "dock";
export type ThemeChoice = "auto" | "light" | "dark";
export type Extras = Pick<PageJson, "against" | "partition" | "device" | "work">;

const QUANTITIES = ["flops", "otherFlops", "bytes"] as const;

/** FLOPs per byte, where no device is chosen; as in `opgraph.analysis.bottleneck`. */
const GENERIC_RIDGE = 10;

export class Figures extends Events<AppEvent> {
  readonly costs: Costs;
  readonly colours: Colours;
  readonly memory: Memory;
  readonly difference: Difference | null;
  /** The way of colouring that is chosen at first. */
  readonly firstMode: ColourMode;
  readonly firstDevice: string;
  device: Device | null = null;
  /** Sizes of the inputs other than those profiled, in the order of the formulas' variables. */
  sizes: number[] | null = null;
  themeChoice: ThemeChoice = "auto";
  /** Whether what is around the page is dark: of a file that is the system's choice, of a widget the notebook's. */
  darkAround: () => boolean = () => globalThis.matchMedia?.("(prefers-color-scheme: dark)").matches ?? false;
  private work: WorkJson | null;

  constructor(
    readonly model: Model,
    readonly devices: Device[],
    more: Extras,
  ) {
    super();
    const { graph } = model;
    this.costs = new Costs(graph);
    this.memory = new Memory(graph);
    this.work = more.work ?? null;
    this.difference = more.against ? new Difference(graph, this.costs, more.against) : null;
    this.colours = new Colours(graph, this.costs, this.difference ? "difference" : "bottleneck", LIGHT, GENERIC_RIDGE);
    this.colours.difference = this.difference;
    this.firstMode = this.colours.mode;
    if (more.partition) this.colours.fusion = new Fusion(graph, more.partition);
    this.firstDevice = devices.some((d) => d.id === more.device) ? (more.device as string) : "";
    this.setDevice(this.firstDevice);
  }

  // Looks.

  get dark(): boolean {
    if (this.themeChoice !== "auto") return this.themeChoice === "dark";
    return this.darkAround();
  }

  get theme(): Theme {
    return this.dark ? DARK : LIGHT;
  }

  setTheme(choice: ThemeChoice): void {
    this.themeChoice = choice;
    this.recolour();
  }

  /** The ways of colouring that this page has something for. */
  modes(): [ColourMode, string][] {
    return COLOUR_MODES.filter(([mode]) => (mode !== "difference" || this.difference) && (mode !== "fusion" || this.colours.fusion) && (mode !== "time" || this.devices.length));
  }

  setMode(mode: ColourMode): void {
    this.colours.mode = mode;
    this.recolour();
  }

  recolour(): void {
    this.colours.theme = this.theme;
    this.colours.forget();
    this.emit("look");
  }

  // Predicting.

  /** The costs at other sizes of the inputs, or with null as profiled. False where no formula holds. */
  setSizes(point: number[] | null): boolean {
    const { formulas, graph } = this.model;
    if (!formulas) return false;
    const base = formulas.base;
    const asked = point && point.some((size, i) => size !== base[i]) ? point : null;
    const values = QUANTITIES.map((q) => (asked ? formulas.nodes(graph, q, (n) => this.costs.own(q, n), asked) : null));
    if (asked && values.includes(null)) return false;
    QUANTITIES.forEach((q, i) => this.costs.replace(q, values[i]));
    this.sizes = asked;
    this.time();
    this.recolour();
    return true;
  }

  /** Predict for a device, or with an unknown id for none. */
  setDevice(id: string): void {
    const next = this.devices.find((d) => d.id === id) ?? null;
    if (next === this.device) return;
    this.device = next;
    this.colours.ridge = next ? next.ridgePoint(mainDtype(this.model.graph)) : GENERIC_RIDGE;
    this.time();
    this.recolour();
  }

  /** Predicted times are of the sizes that were profiled: there are none for others. */
  private time(): void {
    const { device, model } = this;
    const seconds = device && this.work && !this.sizes ? device.predict(this.work, model.graph.nodes.length) : null;
    this.costs.setTime((n) => seconds?.[n] ?? 0);
  }

  /** The ten nodes that take the longest, or without a device do most. */
  hotspots(count = 10): number[] {
    return heaviest(weights(this.model.graph, this.costs), count);
  }

  /** The chain of nodes, each reading what the one before made, that is dearest in all. */
  dearestPath(): number[] {
    return heaviestPath(this.model.graph, weights(this.model.graph, this.costs));
  }

  boundOf(node: number): string {
    return this.colours.bound(node).name;
  }

  get ridgeText(): string {
    return `${this.colours.ridge.toFixed(1)} FLOPs/byte`;
  }
}
