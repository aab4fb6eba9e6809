// The state of the page and everything that can be done to it. The parts of the page (graph, table, panel,
// charts) call these methods and listen to the events; they do not know one another.

import { Costs } from "./data/costs";
import { Difference } from "./data/difference";
import type { PageJson, WorkJson } from "./data/document";
import type { Model } from "./data/graph";
import { buildTree, type Item, type Tree } from "./data/items";
import { Fusion } from "./data/fusion";
import { type Filter, NO_FILTER, passing } from "./data/filters";
import { Memory } from "./data/memory";
import { find } from "./data/search";
import { type Camera, fitted, type Rect } from "./draw/camera";
import { COLOUR_MODES, type ColourMode, Colours } from "./draw/colours";
import type { Marks } from "./draw/painter";
import { type Device, mainDtype } from "./data/devices";
import { DARK, LIGHT, type Theme } from "./draw/theme";
import { LayoutClient } from "./layout/client";
import { type Box, type Scene, SceneMaker } from "./layout/scene";
import { pack } from "./url";
import { openReadable, plumbing, setDeep, View } from "./layout/view";

export type AppEvent = "scene" | "select" | "look" | "lit" | "camera" | "hover" | "search" | "dock";
export type Dock = "" | "memory" | "roofline";

const QUANTITIES = ["flops", "otherFlops", "bytes"] as const;

/** FLOPs per byte, where no device is chosen; as in `opgraph.analysis.bottleneck`. */
const GENERIC_RIDGE = 10;

export type ThemeChoice = "auto" | "light" | "dark";

export class App {
  readonly tree: Tree;
  readonly costs: Costs;
  readonly view: View;
  readonly colours: Colours;
  scene: Scene | null = null;
  camera: Camera = { x: 0, y: 0, zoom: 1 };
  size = { width: 800, height: 600 };
  selected: Item | null = null;
  hovered: Box | null = null;
  query = "";
  hits: Item[] = [];
  hit = -1;
  litName = "";
  lit: Uint8Array | null = null;
  litBefore: Int32Array | null = null;
  plumbingHidden = true;
  themeChoice: ThemeChoice = "auto";
  filter: Filter = NO_FILTER;
  /** The kernel whose live tensors are shown. */
  moment: number | null = null;
  dock: Dock = "";
  device: Device | null = null;
  readonly firstDevice: string;
  /** Sizes of the inputs other than those profiled, in the order of the formulas' variables. */
  sizes: number[] | null = null;
  readonly memory: Memory;
  readonly difference: Difference | null;
  /** The way of colouring that is chosen at first. */
  readonly firstMode: ColourMode;
  /** What is open without anyone having opened anything. */
  readonly openAtFirst: string;
  /** The camera follows the whole picture until a person moves it. */
  following = true;

  private work: WorkJson | null;
  private client = new LayoutClient();
  private maker = new SceneMaker(this.client);
  private listeners = new Map<AppEvent, Set<() => void>>();
  private updating: Promise<void> | null = null;
  private again: (() => void) | null = null;

  constructor(
    readonly model: Model,
    readonly devices: Device[] = [],
    more: Pick<PageJson, "against" | "partition" | "device" | "work"> = {},
  ) {
    this.costs = new Costs(model.graph);
    this.work = more.work ?? null;
    const difference = more.against ? new Difference(model.graph, this.costs, more.against) : null;
    this.tree = buildTree(model.graph, (node) => difference?.change(node) ?? "");
    this.view = new View(model.graph, this.tree);
    this.view.hide(plumbing(model.graph));
    this.colours = new Colours(model.graph, this.costs, "bottleneck", LIGHT, GENERIC_RIDGE);
    this.memory = new Memory(model.graph);
    this.difference = difference;
    this.colours.difference = difference;
    if (difference) this.colours.mode = "difference";
    this.firstMode = this.colours.mode;
    if (more.partition) this.colours.fusion = new Fusion(model.graph, more.partition);
    this.firstDevice = this.devices.some((d) => d.id === more.device) ? (more.device as string) : "";
    this.setDevice(this.firstDevice);
    this.openDefault();
    this.openAtFirst = pack(this.view.open);
  }

  // Events.

  on(event: AppEvent, run: () => void): void {
    const known = this.listeners.get(event) ?? new Set();
    known.add(run);
    this.listeners.set(event, known);
  }

  emit(...events: AppEvent[]): void {
    for (const event of events) this.listeners.get(event)?.forEach((run) => run());
  }

  close(): void {
    this.client.close();
    this.listeners.clear();
  }

  // What is open.

  openDefault(): void {
    const { costs } = this;
    const flops = costs.total("flops") || 1;
    const bytes = costs.total("bytes") || 1;
    openReadable(this.view, (item) => costs.item("flops", item) / flops + costs.item("bytes", item) / bytes);
  }

  /** Open or close; `deep` does so with all that is beneath. The box stays where it is on the screen. */
  toggle(box: Box, deep = false, open = !this.view.isOpen(box.key)): Promise<void> {
    const { key } = box;
    if (!key.children.length || key.kind === "root") return Promise.resolve();
    if (deep) setDeep(this.view, key, open);
    else if (open) {
      // A fold of single nodes has nothing to show but all of them.
      if (key.kind === "fold" && key.children[0].node >= 0) this.view.all.add(key.id);
      this.view.open.add(key.id);
    } else this.view.open.delete(key.id);
    this.following = false;
    return this.update(box);
  }

  /** Show all members of a fold, or one for all. */
  unfold(box: Box, all: boolean): Promise<void> {
    this.view.open.add(box.key.id);
    if (all) this.view.all.add(box.key.id);
    else this.view.all.delete(box.key.id);
    this.following = false;
    return this.update(box);
  }

  /** Show the member of an open fold that is `by` further on. */
  stepMember(box: Box, by: number): Promise<void> {
    const count = box.item.children.length;
    const at = this.view.shown.get(box.key.id) ?? 0;
    this.view.shown.set(box.key.id, (at + by + count) % count);
    return this.update(box);
  }

  /** Open or close everything; `unfold` shows all members of every fold, too. */
  openAll(open: boolean, unfold = false): Promise<void> {
    this.view.all.clear();
    if (unfold) for (const item of this.tree.items) if (item.kind === "fold") this.view.all.add(item.id);
    if (open) setDeep(this.view, this.tree.root, true);
    else {
      this.view.open = new Set([this.tree.root.id]);
    }
    this.following = true;
    return this.update();
  }

  resetOpen(): Promise<void> {
    this.openDefault();
    this.following = true;
    return this.update();
  }

  setPlumbingHidden(hidden: boolean): Promise<void> {
    this.plumbingHidden = hidden;
    this.view.hide(hidden ? plumbing(this.model.graph) : new Uint8Array(this.model.graph.nodes.length));
    this.emit("look");
    return this.update();
  }

  /** Lay out what is open. Calls while one runs are made into one more. */
  update(anchor?: Box): Promise<void> {
    if (this.updating) {
      const before = this.again;
      return new Promise((done) => {
        this.again = () => {
          before?.();
          void this.update(anchor).then(done);
        };
      });
    }
    this.updating = this.make(anchor).finally(() => {
      this.updating = null;
      const again = this.again;
      this.again = null;
      again?.();
    });
    return this.updating;
  }

  private async make(anchor?: Box): Promise<void> {
    const aspect = this.size.width / Math.max(this.size.height, 1);
    const scene = await this.maker.make(this.view, Math.round(Math.min(2.2, Math.max(0.6, aspect)) * 5) / 5);
    const before = this.scene;
    this.scene = scene;
    this.colours.setDrawn(scene.boxes.filter((b) => !b.layout).map((b) => b.item));
    if (this.following || !before) this.camera = this.fittedAll(scene);
    else if (anchor) {
      const now = scene.find(anchor.item);
      this.camera = { ...this.camera, x: this.camera.x + now.x - anchor.x, y: this.camera.y + now.y - anchor.y };
    }
    this.emit("scene", "camera");
  }

  // Choosing.

  /** Choose an item; `reveal` opens what hides it and brings it into sight. */
  async select(item: Item | null, reveal = false): Promise<void> {
    this.selected = item;
    this.emit("select");
    if (item && reveal) {
      await this.reveal(item);
      this.bring(item);
    }
  }

  async reveal(item: Item): Promise<void> {
    if (this.scene && this.scene.find(item).item === item) return;
    this.view.reveal(item);
    if (item.node >= 0 && this.view.hidden[item.node]) await this.setPlumbingHidden(false);
    else await this.update();
  }

  box(item: Item | null): Box | null {
    return item && this.scene ? this.scene.find(item) : null;
  }

  // The camera.

  setCamera(camera: Camera): void {
    this.camera = camera;
    this.following = false;
    this.emit("camera");
  }

  fit(): void {
    if (!this.scene) return;
    this.camera = this.fittedAll(this.scene);
    this.following = true;
    this.emit("camera");
  }

  private fittedAll(scene: Scene): Camera {
    // The tools stand over the left edge.
    const left = this.size.width > 500 ? 34 : 0;
    return fitted(scene.root, this.size.width, this.size.height, 18, 1.15, left);
  }

  /** Bring an item into sight: not at all if it is readable and well inside, else to the middle. */
  bring(item: Item, always = false): void {
    const box = this.box(item);
    if (!box) return;
    const { width, height } = this.size;
    const { zoom } = this.camera;
    const left = (box.x - this.camera.x) * zoom;
    const top = (box.y - this.camera.y) * zoom;
    const inside = left > 20 && top > 20 && left + Math.min(box.w * zoom, width * 0.7) < width - 20 && top + Math.min(box.h * zoom, height * 0.7) < height - 20;
    if (inside && zoom > 0.45 && !always) return;
    const near: Rect = { x: box.x - 260, y: box.y - 180, w: box.w + 520, h: box.h + 360 };
    const target = fitted(near, width, height, 10, Math.max(zoom, 0.9));
    this.setCamera(target.zoom < zoom && zoom < 1.2 && box.h * zoom < height ? centred(box, zoom, width, height) : target);
  }

  resize(width: number, height: number): void {
    if (width === this.size.width && height === this.size.height) return;
    this.size = { width, height };
    if (this.following) this.fit();
    else this.emit("camera");
  }

  // Looks.

  get dark(): boolean {
    if (this.themeChoice !== "auto") return this.themeChoice === "dark";
    return globalThis.matchMedia?.("(prefers-color-scheme: dark)").matches ?? false;
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

  // Light on some nodes.

  /** Light these nodes and fade the others; an empty name puts the light out. */
  light(name: string, nodes: Iterable<number> | null): void {
    this.litName = nodes ? name : "";
    if (this.litName !== "moment") this.moment = null;
    if (this.litName !== "filter") this.filter = NO_FILTER;
    this.lit = null;
    this.litBefore = null;
    if (nodes) {
      const count = this.model.graph.nodes.length;
      const lit = new Uint8Array(count);
      for (const n of nodes) lit[n] = 1;
      this.lit = lit;
      this.litBefore = new Int32Array(count + 1);
      for (let i = 0; i < count; i++) this.litBefore[i + 1] = this.litBefore[i] + lit[i];
    }
    this.emit("lit");
  }

  // Searching.

  search(query: string): void {
    this.query = query;
    this.hits = query.trim() ? find(this.model.graph, this.tree, query) : [];
    this.hit = -1;
    if (query.trim()) {
      this.light("search", this.hits.flatMap((item) => range(item.first, item.last)));
    } else if (this.litName === "search") this.light("", null);
    this.emit("search");
  }

  async stepHit(by: number): Promise<void> {
    if (!this.hits.length) return;
    this.hit = (this.hit + by + this.hits.length + (this.hit < 0 && by < 0 ? 1 : 0)) % this.hits.length;
    this.emit("search");
    await this.select(this.hits[this.hit], true);
  }

  /** Light what was alive while a kernel ran. */
  setMoment(kernel: number | null): void {
    this.moment = kernel;
    const alive = kernel === null ? [] : this.memory.at(kernel).map((s) => s.node);
    this.light("moment", kernel === null ? null : alive.filter((n) => n >= 0));
  }

  boundOf(node: number): string {
    return this.colours.bound(node).name;
  }

  setFilter(filter: Filter | null): void {
    this.filter = filter ?? NO_FILTER;
    this.light("filter", passing(this.model.graph, this.costs, this.filter, (n) => this.boundOf(n)));
  }

  setDock(dock: Dock): void {
    this.dock = dock;
    this.emit("dock");
  }

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
    const weight = this.weights();
    return range(0, weight.length - 1)
      .filter((n) => weight[n] > 0)
      .sort((a, b) => weight[b] - weight[a])
      .slice(0, count);
  }

  /** The chain of nodes, each reading what the one before made, that is dearest in all. */
  dearestPath(): number[] {
    const weight = this.weights();
    const best = new Float64Array(weight.length);
    const from = new Int32Array(weight.length).fill(-1);
    let end = -1;
    for (let n = 0; n < weight.length; n++) {
      for (const s of this.model.graph.sources[n]) {
        if (from[n] < 0 || best[s] > best[from[n]]) from[n] = s;
      }
      best[n] = weight[n] + (from[n] >= 0 ? best[from[n]] : 0);
      if (end < 0 || best[n] > best[end]) end = n;
    }
    const path: number[] = [];
    for (let n = end; n >= 0; n = from[n]) path.unshift(n);
    return path;
  }

  /** Seconds by node, or without a device the share of all FLOPs and bytes. */
  private weights(): Float64Array {
    const { costs } = this;
    const timed = costs.total("time") > 0;
    const [flops, bytes] = [costs.total("flops") || 1, costs.total("bytes") || 1];
    return Float64Array.from(this.model.graph.nodes, (_, n) =>
      timed ? costs.node("time", n) : costs.node("flops", n) / flops + costs.node("bytes", n) / bytes,
    );
  }

  get ridgeText(): string {
    return `${this.colours.ridge.toFixed(1)} FLOPs/byte`;
  }

  marks(): Marks {
    const selected = this.box(this.selected);
    const marks: Marks = {
      selected,
      hovered: this.hovered,
      lit: this.lit,
      litBefore: this.litBefore,
      current: this.box(this.hits[this.hit] ?? null),
      into: [],
      out: [],
    };
    if (selected?.parent?.layout) {
      const { parent } = selected;
      const at = parent.children.indexOf(selected);
      parent.edges.forEach((edge, i) => {
        const points = (parent.layout as NonNullable<Box["layout"]>).edges[i];
        if (edge.to === at) marks.into.push({ box: parent, points });
        else if (edge.from === at) marks.out.push({ box: parent, points });
      });
    }
    return marks;
  }
}

function centred(box: Rect, zoom: number, width: number, height: number): Camera {
  return { zoom, x: box.x + box.w / 2 - width / 2 / zoom, y: box.y + box.h / 2 - height / 2 / zoom };
}

export function range(first: number, last: number): number[] {
  return Array.from({ length: last - first + 1 }, (_, i) => first + i);
}
