// The state of the page and everything that can be done to it. The parts of the page (graph, table, panel,
// charts) call these methods and listen to the events; they do not know one another.

import { type Filter, find, NO_FILTER, passing } from "./data/finding";
import { running } from "./data/costs";
import type { PageJson } from "./data/document";
import { type Item, nodesIn } from "./data/tree";
import { bringing, type Camera, edgesAt, fitted, type Inset, type Marks, showing, visible } from "./draw/camera";
import { LEGIBLE, SMALL } from "./draw/painter";
import { Figures } from "./figures";
import { type Box, Queue, type Scene, SceneMaker } from "./layout/scene";
import { openReadable, setDeep, View } from "./layout/view";

export type { AppEvent } from "./figures";
export const DOCKS = ["memory", "roofline", "timeline"] as const;
export type Dock = "" | (typeof DOCKS)[number];

/** How many boxes are opened at first, as far as they can be read. */
const BUDGETS = [26, 20, 16];
/** Scales at first: at the one a whole picture is shown (letters of 12 pixels and more), and its top else at the largest (of
 * 14, types of 17) at which its width is seen, in letters of nine pixels and more. What is wider is seen in part, at the least: in
 * a narrow window 650 units, where letters grow to nine pixels. */
const WHOLE = 1;
const LARGE = 1.2;
const WIDE = LEGIBLE / SMALL;
const least = (width: number): number => Math.min(0.92, Math.max(0.6, width / 650));
const MARGIN = 16;

export class App extends Figures {
  readonly view: View;
  scene: Scene | null = null;
  camera: Camera = { x: 0, y: 0, zoom: 1 };
  size = { width: 800, height: 600 };
  /** What the tools that stand over the graph take of it. */
  inset: Inset = { left: 0, top: 0 };
  selected: Item | null = null;
  hovered: Box | null = null;
  /** Where on the canvas the pointer is; null where it is elsewhere. */
  pointer: { x: number; y: number } | null = null;
  query = "";
  hits: Item[] = [];
  hit = -1;
  litName = "";
  lit: Uint8Array | null = null;
  litBefore: Float64Array | null = null;
  plumbingHidden = true;
  filter: Filter = NO_FILTER;
  /** The kernel whose live tensors are shown. */
  moment: number | null = null;
  dock: Dock = "";
  /** What is open without anyone having opened anything. */
  openAtFirst: ReadonlySet<number>;
  /** The camera follows the whole picture until a person moves it. */
  following = true;
  /** The camera shows all, however small. */
  whole = false;
  /** Laid out as one column, to be read from its top. */
  private tall = false;

  private maker = new SceneMaker();
  private queue = new Queue();

  constructor(page: PageJson) {
    super(page);
    const { graph } = this.model;
    this.view = new View(graph, this.tree);
    this.view.hide(this.plumbing(true));
    this.colours.apart = this.view.apart;
    this.openDefault();
    this.openAtFirst = new Set(this.view.open);
    this.on(() => this.litName === "path" && this.lightPath(), "look");
  }

  // What is open.

  openDefault(boxes?: number): void {
    const { costs } = this;
    const flops = costs.total("flops") || 1;
    const bytes = costs.total("bytes") || 1;
    openReadable(this.view, (item) => costs.item("flops", item) / flops + costs.item("bytes", item) / bytes, boxes);
  }

  /** Open as much as is seen whole in letters that can be read; of what is larger still, its top is shown. */
  async openFirst(): Promise<void> {
    this.tall = false;
    for (const boxes of BUDGETS) {
      this.openDefault(boxes);
      this.openAtFirst = new Set(this.view.open);
      await this.update();
      if (this.scene && this.fittedAll(this.scene).zoom >= WHOLE) return;
    }
    // As one column from the top, unless several show much more.
    const seen = this.seen();
    this.tall = true;
    await this.update();
    if (this.seen() >= seen / 1.5) return;
    this.tall = false;
    await this.update();
  }

  /** How many boxes are wholly in sight. */
  private seen(): number {
    const { x, y, w, h } = visible(this.camera, this.size.width, this.size.height);
    const inside = (b: Box): boolean => b.x >= x && b.y >= y && b.x + b.w <= x + w && b.y + b.h <= y + h;
    return this.scene?.boxes.filter(inside).length ?? 0;
  }

  /** Open or close; `deep` does so with all that is beneath. The box stays where it is on the screen. */
  toggle(box: Box, deep = false, open = !this.view.isOpen(box.key)): Promise<void> {
    const { key } = box;
    if (!key.children.length || key.kind === "root") return Promise.resolve();
    if (deep) setDeep(this.view, key, open);
    else if (open) this.view.open.add(key.id);
    else this.view.open.delete(key.id);
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
    this.whole = true;
    this.tall = false;
    if (open) setDeep(this.view, this.tree.root, true);
    else {
      this.view.open = new Set([this.tree.root.id]);
    }
    this.following = true;
    return this.update();
  }

  resetOpen(): Promise<void> {
    this.following = true;
    this.whole = false;
    return this.openFirst();
  }

  setPlumbingHidden(hidden: boolean): Promise<void> {
    this.plumbingHidden = hidden;
    this.view.hide(this.plumbing(hidden));
    this.emit("look");
    return this.update();
  }

  /** By node whether it is hidden. */
  private plumbing(hidden: boolean): Uint8Array {
    return Uint8Array.from(this.model.graph.nodes, (_, n) => Number(hidden && this.page.plumbing[n] === "1"));
  }

  /** Lay out what is open. */
  update(anchor?: Box): Promise<void> {
    return this.queue.run(() => this.make(anchor));
  }

  private async make(anchor?: Box): Promise<void> {
    const aspect = this.tall ? 0 : this.size.width / Math.max(this.size.height, 1);
    const scene = await this.maker.make(this.view, Math.round(Math.min(2.2, Math.max(0.6, aspect)) * 5) / 5);
    const before = this.scene;
    this.scene = scene;
    this.colours.setDrawn(scene.boxes.filter((b) => !b.layout).map((b) => b.item));
    if (this.following || !before) this.camera = this.framed(scene);
    else if (anchor) {
      const now = scene.find(anchor.item);
      const { width, height } = this.size;
      this.camera = { ...this.camera, x: this.camera.x + now.x - anchor.x, y: this.camera.y + now.y - anchor.y };
      if (now.layout) this.camera = showing(this.camera, now, width, height, this.inset);
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

  /** What is chosen of the model, and not all of it. */
  get chosen(): Item | null {
    return this.selected?.kind === "root" ? null : this.selected;
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
    this.whole = true;
    if (!this.tall) return this.frame();
    this.tall = false;
    this.following = true;
    void this.update();
  }

  private frame(): void {
    if (!this.scene) return;
    this.camera = this.framed(this.scene);
    this.following = true;
    this.emit("camera");
  }

  /** All of it; until a person asks for that, from the top in letters that can be read, and about what costs most. */
  private framed(scene: Scene): Camera {
    const camera = this.fittedAll(scene);
    if (this.whole || camera.zoom >= WHOLE) return camera;
    const { left, top } = this.inset;
    const { w } = scene.bounds;
    const across = this.size.width - left;
    const wide = (across - 2 * MARGIN) / w;
    const zoom = Math.min(LARGE, wide < WIDE ? Math.max(least(this.size.width), wide) : wide);
    const from = Math.max(MARGIN, (across - w * zoom) / 2);
    const middle = this.costliest(scene.root, across / zoom, (this.size.height - top - 2 * MARGIN) / zoom);
    const x = Math.max(-(left + from), Math.min(middle * zoom - left - across / 2, w * zoom + MARGIN - this.size.width));
    return { zoom, x: x / zoom, y: -(top + MARGIN) / zoom };
  }

  /** The middle of the costliest box that is whole in this room at the top, or of what is around it. */
  private costliest(box: Box, w: number, h: number): number {
    const within = box.children.filter((b) => b.y + (b.layout ? 0 : b.h) <= h);
    if (box.w <= w || !within.length) return box.x + box.w / 2;
    return this.costliest(within.reduce((a, b) => (this.colours.share(b.item) > this.colours.share(a.item) ? b : a)), w, h);
  }

  private fittedAll(scene: Scene): Camera {
    return fitted(scene.bounds, this.size.width, this.size.height, MARGIN, LARGE, this.inset);
  }

  /** Bring an item into sight: not at all if it is readable and well inside, else to the middle. */
  bring(item: Item, always = false): void {
    const box = this.box(item);
    const camera = box && bringing(this.camera, box, this.size.width, this.size.height, always);
    if (camera) this.setCamera(camera);
  }

  resize(width: number, height: number, inset: Inset): void {
    if (width === this.size.width && height === this.size.height) return;
    this.size = { width, height };
    this.inset = inset;
    if (this.following) this.frame();
    else this.emit("camera");
  }

  // Light on some nodes.

  /** Light these nodes and fade the others; an empty name puts the light out. */
  light(name: string, nodes: Iterable<number> | null): void {
    this.litName = nodes ? name : "";
    if (this.litName !== "moment") this.moment = null;
    if (this.litName !== "filter") this.filter = NO_FILTER;
    const lit = nodes && new Uint8Array(this.model.graph.nodes.length);
    for (const n of nodes ?? []) if (lit) lit[n] = 1;
    this.lit = lit;
    this.litBefore = lit && running(lit.length, (i) => lit[i]);
    this.emit("lit");
  }

  // Searching.

  search(query: string): void {
    this.query = query;
    this.hits = query.trim() ? find(this.model.graph, this.tree, query) : [];
    this.hit = -1;
    if (query.trim()) {
      this.light("search", this.hits.flatMap(nodesIn));
    } else if (this.litName === "search") this.light("", null);
    this.emit("search");
  }

  /** How many boxes the hits are seen in: what is folded is found once for every repetition, and drawn once. */
  hitBoxes(): number {
    const drawn = new Set(this.scene?.boxes.map((box) => box.key.id));
    const found = this.hits.map((item) => {
      let at = item;
      while (at.parent && !drawn.has(at.key)) at = at.parent;
      return at.key;
    });
    return new Set(found).size;
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

  /** Light the costliest path; it follows what shares are of. */
  lightPath(): void {
    this.light("path", this.costliestPath());
  }

  setFilter(filter: Filter | null): void {
    this.filter = filter ?? NO_FILTER;
    this.light("filter", passing(this.model.graph, this.costs, this.filter, (n) => this.boundOf(n)));
  }

  setDock(dock: Dock): void {
    this.dock = dock;
    this.emit("dock");
  }

  marks(): Marks {
    const selected = this.box(this.selected);
    const { hovered, lit, litBefore } = this;
    return { selected, hovered, lit, litBefore, current: this.box(this.hits[this.hit] ?? null), ...edgesAt(selected) };
  }
}
