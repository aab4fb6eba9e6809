// A model with its figures and colours: on a device or none, at the profiled sizes or others, coloured in
// one of the ways, light or dark.

import { Costs, type Measure } from "./data/costs";
import { headline, type HotSpot, hotSpots, inRow } from "./data/costliest";
import { Difference, Fusion, Memory } from "./data/answers";
import { clean, type DeviceJson, numbers, type PageJson, stepped } from "./data/document";
import { type Model, readModel } from "./data/graph";
import { type Item, readTree, type Tree } from "./data/tree";
import { COLOUR_MODES, type ColourMode, Colours } from "./draw/colours";
import { DARK, LIGHT, type Theme } from "./draw/theme";

export type AppEvent = "scene" | "select" | "look" | "lit" | "camera" | "hover" | "search" | "dock";
export type ThemeChoice = "auto" | "light" | "dark";

const QUANTITIES = ["flops", "otherFlops", "bytes"] as const;

/** Who listens to what: the parts of the page know the app and its events, and not one another. */
class Events<Name extends string> {
  private listeners = new Map<Name, Set<() => void>>();
  private held: Set<Name> | null = null;

  on(run: () => void, ...events: Name[]): void {
    for (const event of events) this.listeners.set(event, (this.listeners.get(event) ?? new Set()).add(run));
  }

  /** Now, and again at any of these. */
  keep(run: () => void, ...events: Name[]): void {
    this.on(run, ...events);
    run();
  }

  /** Whoever listens to any of these hears of it once. */
  emit(...events: Name[]): void {
    if (this.held) events.forEach((event) => this.held?.add(event));
    else new Set(events.flatMap((event) => [...(this.listeners.get(event) ?? [])])).forEach((run) => run());
  }

  /** Say nothing while something is done, and then all at once. */
  async hold(run: () => Promise<void>): Promise<void> {
    const held = (this.held = new Set());
    await run();
    this.held = null;
    this.emit(...held);
  }

  /** Nobody listens any more. */
  silence(): void {
    this.listeners.clear();
  }
}

export class Figures extends Events<AppEvent> {
  readonly model: Model;
  readonly tree: Tree;
  readonly costs: Costs;
  readonly colours: Colours;
  readonly memory: Memory;
  readonly difference: Difference | null;
  readonly devices: DeviceJson[];
  /** The way of colouring that is chosen at first. */
  readonly firstMode: ColourMode;
  readonly firstDevice: string;
  device: DeviceJson | null = null;
  /** Sizes of the inputs other than those profiled, in the order of the variables. */
  sizes: number[] | null = null;
  themeChoice: ThemeChoice = "auto";
  /** Whether what is around the page is dark: of a file that is the system's choice, of a widget the notebook's. */
  darkAround: () => boolean = () => globalThis.matchMedia?.("(prefers-color-scheme: dark)").matches ?? false;

  constructor(readonly page: PageJson) {
    super();
    this.model = readModel(page.profile, page.against);
    const { graph } = this.model;
    this.tree = readTree(page.tree, graph);
    for (const [text, ids] of Object.entries(page.details ?? {})) {
      for (const id of ids) graph.details[id - 1] = clean(text, 60);
    }
    // Where the data decided, a node is named after what was taken.
    graph.nodes.forEach(({ op }, n) => {
      if (op === "item" && graph.details[n]) this.tree.leaf[n].label = graph.details[n];
    });
    this.costs = new Costs(graph, numbers(page.work), page);
    this.memory = new Memory(graph, page);
    this.devices = page.devices.map((d) => ({ ...d, name: clean(d.name), vendor: clean(d.vendor) }));
    this.difference = page.against ? new Difference(this.costs, page.against) : null;
    const mode = this.difference ? "difference" : page.measured ? "measured" : "bottleneck";
    this.colours = new Colours(graph, this.costs, page.marks, mode, LIGHT);
    this.colours.difference = this.difference;
    this.firstMode = this.colours.mode;
    if (page.partition) this.colours.fusion = new Fusion(graph, page.partition);
    this.firstDevice = this.devices.some((d) => d.id === page.device) ? (page.device as string) : "";
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
    return COLOUR_MODES.filter(
      ([mode]) => (mode !== "difference" || this.difference) && (mode !== "fusion" || this.colours.fusion) &&
        (mode !== "time" || this.devices.length) && (mode !== "measured" || this.costs.total("measured"))
    );
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

  /** Where sizes of the inputs stand among the points that are offered; -1 where they do not. */
  pointOf(sizes: number[]): number {
    const { variables = [] } = this.page.sizes ?? {};
    const at = variables.map(({ offered }, i) => offered.indexOf(sizes[i]));
    if (sizes.length !== variables.length || at.includes(-1)) return -1;
    return variables.reduce((point, { offered }, i) => point * offered.length + at[i], 0);
  }

  /** The costs at sizes that are offered, or with null as profiled. False where no formula holds. */
  setSizes(asked: number[] | null): boolean {
    const { sizes } = this.page;
    const other = asked && sizes?.variables.some(({ value }, i) => value !== asked[i]) ? asked : null;
    const costs = other ? (sizes?.costs[this.pointOf(other)] ?? null) : null;
    if (!sizes || (other && !costs)) return false;
    const kinds = numbers(sizes.nodes);
    QUANTITIES.forEach((q, i) => this.costs.replace(q, costs && kinds.map((kind) => costs[kind]?.[i] ?? 0)));
    this.sizes = other;
    this.time();
    this.recolour();
    return true;
  }

  /** Show what is predicted for a device, or with an unknown id for none. */
  setDevice(id: string): void {
    const next = this.devices.find((d) => d.id === id) ?? null;
    if (next === this.device) return;
    this.device = next;
    this.time();
    this.recolour();
  }

  /** Predicted times are of the sizes that were profiled: there are none for others. */
  private time(): void {
    this.costs.setDevice(this.device, !this.sizes);
    this.difference?.setDevice(this.device);
  }

  /** What shares are of: the measure that colours show, else time where it is predicted, else FLOPs or bytes. */
  get metric(): Measure {
    return this.colours.metric;
  }

  /** The folded modules that the whole consists of, with their shares. */
  row(): [Item, number][] {
    return inRow(this.tree, this.costs, this.metric);
  }

  /** The sentence that says where the cost is, and what it means. */
  headline(): [string, string] {
    return headline(this.page.headline, this.model, this.costs, this.device, this.tree, this.page.spots);
  }

  /** Questions that the page does not answer, each with the command that does. */
  get next(): [string, string][] {
    return (this.page.next ?? []).map(([what, command]) => [clean(what), clean(command, 500)]);
  }

  /** The ten modules that take the longest themselves, or without a device do most. */
  hotspots(count = 10): HotSpot[] {
    return hotSpots(this.page.spots, this.tree, this.costs, this.metric, count);
  }

  /** The chain of nodes, each reading what the one before made, that is costliest in all. */
  costliestPath(): number[] {
    const { metric, page } = this;
    const at = metric === "time" ? this.device?.path : page.path?.[metric];
    const count = this.model.graph.nodes.length;
    return stepped(numbers(page.paths?.[at ?? -1] ?? [])).map((id) => id - 1).filter((n) => n < count);
  }

  boundOf(node: number): string {
    return this.colours.bound({ first: node, last: node }).label;
  }

  get ridgeText(): string {
    return `${this.costs.ridge.toFixed(1)} FLOPs/byte`;
  }
}
