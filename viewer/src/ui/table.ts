// The table of modules and nodes: as a tree that is open where the graph is open, or all nodes in one list.
// Only the rows in sight exist. Choosing and scrolling go both ways between table and graph.

import type { App } from "../app";
import type { Measure } from "../data/costs";
import type { Item } from "../data/tree";
import * as format from "../format";
import type { Box } from "../layout/scene";
import { button, copyText, div, fill, h, ICONS, onFrame, press, span } from "./dom";
import { hint } from "./parts";

// Columns, and rows as CSV.

interface Column {
  name: string;
  key: string;
  /** In pixels; the names take what is left. */
  width: number;
  /** For sorting; text sorts upwards, figures downwards. */
  value: (app: App, item: Item) => number | string;
  text: (app: App, item: Item) => string;
}

const figure = (
  name: string, key: string, width: number, value: (app: App, item: Item) => number, text: (value: number) => string,
): Column => ({
  name, key, width, value, text: (app, item) => {
    const amount = value(app, item);
    return amount ? text(amount) : "";
  },
});

/** A measure of all repetitions of an item, or of one. */
const total = (measure: Measure) => (app: App, item: Item): number => app.costs.share(measure, item, app.view.all).total;
const each = (measure: Measure) => (app: App, item: Item): number => app.costs.share(measure, item).each;
const own = (measure: Measure) => (app: App, item: Item): number => app.costs.item(measure, item);
const share = (value: number): string => (value < 0.0005 ? "" : format.percent(value));
const flops = (value: number): string =>
  format.count(value, "").replace(/B$/, "G").replace(/([A-Za-z])$/, " $1");

const INTENSITY = figure("Intensity", "intensity", 72, (app, i) => app.costs.intensity(i) ?? 0, format.intensity);
const ENDS: Column[] = [
  { name: "Class or operator", key: "kind", width: 150, value: (app, i) => kindOf(app, i), text: kindOf },
  { name: "Output", key: "output", width: 140, value: (app, i) => outputOf(app, i), text: outputOf },
];
const PARAMETERS = figure("Parameters", "parameters", 84, (app, i) => app.costs.parameterCount(i), (v) => format.count(v));

/** Of the tree: what all repetitions take, and then what one does. */
const TREE: Column[] = [
  { name: "Name", key: "name", width: 0, value: (_, i) => i.path || i.label, text: (_, i) => nameOf(i) },
  figure("Share", "share", 84, (app, i) => app.colours.share(i), share),
  figure("Measured", "measured", 76, total("measured"), format.seconds),
  figure("Time", "time", 76, total("time"), format.seconds),
  figure("FLOPs", "flops", 82, total("flops"), flops),
  figure("Bytes", "bytes", 84, total("bytes"), format.size),
  figure("Time each", "time_each", 74, each("time"), format.seconds),
  figure("FLOPs each", "flops_each", 84, each("flops"), flops),
  figure("Bytes each", "bytes_each", 84, each("bytes"), format.size),
  figure("Times", "times", 54, (app, i) => app.costs.share("kernels", i, app.view.all).times, (v) => (v > 1 ? `× ${v}` : "")),
  PARAMETERS,
  INTENSITY,
  figure("Memory made", "memory", 84, total("memory"), format.size),
  ...ENDS,
];

/** Of the list of all nodes: what each takes itself, and where it stands. */
const NODES: Column[] = [
  { name: "Name", key: "name", width: 0, value: (_, i) => i.path || i.label, text: (_, i) => nameOf(i) },
  figure("Share", "share", 84, (app, i) => own(app.metric)(app, i) / (app.costs.total(app.metric) || 1), share),
  figure("Measured", "measured", 76, own("measured"), format.seconds),
  figure("Time", "time", 76, own("time"), format.seconds),
  figure("FLOPs", "flops", 82, own("flops"), flops),
  figure("Bytes", "bytes", 84, own("bytes"), format.size),
  { name: "Path", key: "path", width: 190, value: pathOf, text: pathOf },
  PARAMETERS,
  INTENSITY,
  figure("Memory made", "memory", 84, own("memory"), format.size),
  ...ENDS,
];

/** By how much an item differs from the other profile. */
const more = (measure: "flops" | "bytes") => (app: App, item: Item): number =>
  app.costs.item(measure, item) - (app.difference?.was(measure, item) ?? 0);
const signed = (write: (value: number) => string) => (value: number): string =>
  `${value > 0 ? "+" : "−"}${write(Math.abs(value))}`;
const DIFFERENCE = [
  figure("Δ FLOPs", "flops_more", 86, more("flops"), signed(flops)),
  figure("Δ bytes", "bytes_more", 92, more("bytes"), signed(format.size)),
];

/** Time is a column where a device is chosen, and what differs where there is another profile. */
function columnsOf(app: App, flat: boolean): Column[] {
  const [name, ...others] = flat ? NODES : TREE;
  const columns = [name, ...(app.difference ? DIFFERENCE : []), ...others];
  const timed = (["time", "measured"] as const).filter((measure) => !app.costs.total(measure));
  return columns.filter((c) => !timed.some((measure) => c.key.split("_")[0] === measure));
}

/** Items as lines of plain figures. */
function csv(app: App, items: Item[], columns: Column[]): string {
  const quote = (cell: string): string => (/[",\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
  // A cell that begins like a formula would be run by a spreadsheet.
  const safe = (cell: string): string => quote(/^[=+\-@\t]/.test(cell) ? `'${cell}` : cell);
  const line = (item: Item): string =>
    columns.map((c) => {
      const value = c.value(app, item);
      return typeof value === "number" ? String(value) : safe(value);
    }).join(",");
  return [columns.map((c) => c.key).join(","), ...items.map(line)].join("\n") + "\n";
}

function nameOf(item: Item): string {
  if (item.node < 0) return item.label + (item.call ? ` (call ${item.call})` : "");
  return item.label;
}

function pathOf(_: App, item: Item): string {
  return item.path || (item.parent?.path ?? "");
}

function kindOf(app: App, item: Item): string {
  return item.node >= 0 ? app.model.graph.nodes[item.node].op : item.cls;
}

function outputOf(app: App, item: Item): string {
  const { graph } = app.model;
  const value = graph.nodes[item.last]?.outputs[0];
  return value === undefined ? "" : format.shape(graph.values[value].shape);
}

// Rows.

const ROW = 26;

interface Row {
  item: Item;
  /** Its box in the graph; null in the list of all nodes. */
  box: Box | null;
  depth: number;
}

function rowElement(app: App, { item, box, depth }: Row, at: number, columns: Column[]): HTMLElement {
  const branch = item.children.length > 0;
  const open = box ? box.layout !== null : false;
  const faded = app.litBefore ? app.litBefore[item.last + 1] === app.litBefore[item.first] : false;
  const chosen = app.selected === item;
  const look = app.colours.look(item);
  const states = { chosen, faded, hovered: app.hovered?.item === item, failed: app.costs.item("errors", item) > 0 };
  const classes = ["row", ...Object.entries(states).flatMap(([name, is]) => (is ? name : []))].join(" ");
  const twist = (event: MouseEvent): void => {
    event.stopPropagation();
    if (box) void app.toggle(box);
  };
  const [kind, label] = open ? ["twist open", "Close"] : ["twist", "Open"];
  const toggle = branch
    ? h("button", { type: "button", class: kind, tabindex: "-1", "aria-label": label, onclick: twist })
    : span("twist none");
  return h(
    "div",
    {
      class: classes, role: "row", "aria-level": String(depth + 1), "aria-selected": String(chosen),
      title: hint(app, item), style: { top: `${at * ROW}px` }, data: { item: String(item.id) },
      onclick: () => void app.select(item, true),
      ondblclick: () => box && void app.toggle(box),
      onmouseenter: () => {
        const under = app.box(item);
        if (under === app.hovered) return;
        app.hovered = under;
        app.emit("hover");
      },
    },
    ...columns.map((c, i) => {
      if (i) {
        const part = c.key === "share" ? { "--share": `${Math.min(1, Number(c.value(app, item))) * 100}%` } : undefined;
        const kind = part ? "cell number share" : typeof c.value(app, item) === "number" ? "cell number" : "cell";
        return h("span", { class: kind, role: "gridcell", style: part, title: typeof c.value(app, item) === "string" ? c.text(app, item) : undefined },
          c.text(app, item));
      }
      return h(
        "span",
        { class: "cell name", role: "gridcell", style: { "padding-left": `${8 + depth * 13}px` } },
        toggle,
        h("span", { class: "swatch", style: { background: look.colour } }),
        span(branch ? "label strong" : "label", c.text(app, item)),
        item.kind === "fold" ? span("pill", `× ${item.count}`) : null,
      );
    }),
  );
}

export class Table {
  readonly element: HTMLElement;
  private body: HTMLElement;
  private space: HTMLElement;
  private head: HTMLElement;
  private rows: Row[] = [];
  private place = new Map<number, number>();
  private sortKey = "";
  private flat = false;
  private inStep = true;
  /** When a person last moved the table, and when the table last moved the graph. */
  private touched = -Infinity;
  private movedGraph = -Infinity;
  /** The rows that are drawn, by position. */
  private drawn = new Map<number, HTMLElement>();

  constructor(private app: App) {
    this.head = h("div", { class: "table-head", role: "row" });
    this.space = h("div", { class: "table-space", role: "rowgroup" });
    this.body = h(
      "div", { class: "table-body", role: "treegrid", tabindex: "0", "aria-label": "Modules and nodes" }, this.head,
      this.space,
    );
    this.element = h("section", { class: "table", "aria-label": "Table" }, this.tools(), this.body);
    const draw = onFrame(() => this.draw());
    const redraw = onFrame(() => this.redraw());
    let top = 0;
    this.body.addEventListener("scroll", () => {
      draw();
      const sideways = this.body.scrollTop === top;
      top = this.body.scrollTop;
      if (!sideways && performance.now() - this.touched < 600) this.followTable();
    });
    for (const event of ["wheel", "touchmove", "pointerdown", "pointermove"] as const) {
      this.body.addEventListener(event, (e) => {
        if (e.type !== "pointermove" || (e as PointerEvent).buttons) this.touched = performance.now();
      }, { passive: true });
    }
    this.body.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(onFrame(() => {
      this.widen();
      this.draw();
    })).observe(this.body);
    app.on("scene", () => this.rebuild());
    app.on("look", () => this.rebuild());
    app.on("lit", redraw);
    // A row under the pointer is marked, not made anew: it would be entered again.
    app.on("hover", onFrame(() => {
      for (const [at, row] of this.drawn) row.classList.toggle("hovered", app.hovered?.item === this.rows[at]?.item);
    }));
    app.on("select", () => {
      this.show(app.selected);
      redraw();
    });
    let pause = 0;
    app.on("camera", () => {
      pause ||= window.setTimeout(() => {
        pause = 0;
        this.followGraph();
      }, 120);
    });
  }

  private get columns(): Column[] {
    return columnsOf(this.app, this.flat);
  }

  private tools(): HTMLElement {
    const choice = (name: string, flat: boolean): HTMLButtonElement =>
      h("button", { type: "button", "aria-pressed": String(this.flat === flat), onclick: () => {
        this.flat = flat;
        tree.setAttribute("aria-pressed", String(!flat));
        nodes.setAttribute("aria-pressed", String(flat));
        this.rebuild();
      } }, name);
    const tree = choice("Tree", false);
    const nodes = choice("All nodes", true);
    const step = button("Scroll graph and table together", ICONS.link, () => {
      this.inStep = !this.inStep;
      step.setAttribute("aria-pressed", String(this.inStep));
    }, { "aria-pressed": "true" });
    const copy = button("Copy as CSV", ICONS.copy, () => void this.copy(copy));
    return div("table-tools", div("choices joined", tree, nodes), span("spring"), step, copy);
  }

  private rebuild(): void {
    const { app } = this;
    this.rows = [];
    if (this.flat) {
      for (const item of app.tree.leaf) this.rows.push({ item, box: null, depth: 0 });
      this.sort(this.rows);
    } else if (app.scene) {
      const add = (box: Box, depth: number): void => {
        this.rows.push({ item: box.item, box, depth });
        const children = box.children.map((c): Row => ({ item: c.item, box: c, depth: depth + 1 }));
        for (const child of this.sort(children)) add(child.box as Box, depth + 1);
      };
      for (const child of this.sort(app.scene.root.children.map((box) => ({ item: box.item, box, depth: 0 })))) {
        add(child.box as Box, 0);
      }
    }
    this.place = new Map(this.rows.map((row, i) => [row.item.id, i]));
    this.space.style.setProperty("height", `${this.rows.length * ROW}px`);
    this.drawHead();
    this.redraw();
  }

  private sort(rows: Row[]): Row[] {
    const column = this.columns.find((c) => c.key === this.sortKey);
    if (!column) return rows;
    const values = new Map(rows.map((r) => [r, column.value(this.app, r.item)]));
    return rows.sort((a, b) => {
      const [x, y] = [values.get(a) as number | string, values.get(b) as number | string];
      return typeof x === "number" ? (y as number) - x : x.localeCompare(String(y), "en", { numeric: true });
    });
  }

  /** Names take what room the figures leave that are seen whole. */
  private widen(): void {
    const figures = this.columns.slice(1).map((c) => c.width);
    const first = (n: number): number => figures.slice(0, n).reduce((sum, w) => sum + w, 0);
    const rest = [figures.length, 4, 3, 2, 1].map((n) => this.body.clientWidth - first(n)).find((w) => w >= 175) ?? 175;
    for (const part of [this.head, this.space]) {
      part.style.setProperty("min-width", `${rest + first(figures.length)}px`);
    }
    this.body.style.setProperty("--columns", [rest, ...figures].map((w) => `${w}px`).join(" "));
  }

  private drawHead(): void {
    const { columns } = this;
    this.widen();
    fill(this.head, ...columns.map((c) =>
      h("div", {
        class: c.key === "name" ? "cell" : "cell number", role: "columnheader",
        "aria-sort": this.sortKey === c.key ? "descending" : "none",
      }, press([c.name, this.sortKey === c.key ? " ↓" : ""], () => {
        this.sortKey = this.sortKey === c.key ? "" : c.key;
        this.rebuild();
      }, { title: `Sort by ${c.name.toLowerCase()}` })),
    ));
  }

  private redraw(): void {
    this.drawn.clear();
    this.space.replaceChildren();
    this.draw();
  }

  /** Make the rows that have come into sight, and drop those that have left it. */
  private draw(): void {
    const top = Math.max(0, this.body.scrollTop - ROW);
    const first = Math.max(0, Math.floor(top / ROW) - 8);
    const last = Math.min(this.rows.length, first + Math.ceil(this.body.clientHeight / ROW) + 16);
    for (const [at, row] of this.drawn) {
      if (at >= first && at < last) continue;
      row.remove();
      this.drawn.delete(at);
    }
    for (let at = first; at < last; at++) {
      if (this.drawn.has(at)) continue;
      const row = rowElement(this.app, this.rows[at], at, this.columns);
      this.drawn.set(at, row);
      this.space.append(row);
    }
  }

  /** Scroll to an item's row, if it has one and it is out of sight. */
  private show(item: Item | null): void {
    let at: number | undefined;
    for (let up = item; up && at === undefined; up = up.parent) at = this.place.get(up.id);
    if (at !== undefined) this.scrollTo(at, false);
  }

  private scrollTo(at: number, middle: boolean): void {
    const { scrollTop, clientHeight } = this.body;
    const y = at * ROW;
    const room = clientHeight - ROW;
    if (!middle && y >= scrollTop && y + ROW <= scrollTop + room) return;
    this.touched = -Infinity;
    this.body.scrollTop = y - room / 2;
  }

  /** The graph was moved: show the row of what is in its middle. */
  private followGraph(): void {
    const { app } = this;
    if (!this.inStep || this.flat || this.sortKey || app.following || performance.now() - Math.max(
      this.movedGraph, this.touched,
    ) < 400) {
      return;
    }
    const { camera, size, scene } = app;
    if (!scene) return;
    const x = camera.x + size.width / 2 / camera.zoom;
    const y = camera.y + size.height / 2 / camera.zoom;
    let best: Box | null = null;
    let least = Infinity;
    for (const box of scene.boxes) {
      if (box.layout) continue;
      const distance = (Math.abs(box.y + box.h / 2 - y) * size.width) / size.height + Math.abs(box.x + box.w / 2 - x);
      if (distance < least) [best, least] = [box, distance];
    }
    const at = best && this.place.get(best.item.id);
    if (at !== null && at !== undefined) this.scrollTo(at, true);
  }

  /** The table was scrolled: bring what is in its middle to the middle of the graph. */
  private followTable(): void {
    const { app } = this;
    if (!this.inStep || this.flat || this.sortKey || !app.scene) return;
    const at = Math.floor((this.body.scrollTop + (this.body.clientHeight - ROW) / 2) / ROW);
    const row = this.rows[Math.min(this.rows.length - 1, at)];
    if (!row?.box) return;
    this.movedGraph = performance.now();
    const { zoom } = app.camera;
    const near = Math.max(zoom, Math.min(0.7, 40 / Math.max(1, row.box.layout ? 60 : row.box.h)));
    const middle = row.box.y + Math.min(row.box.h / 2, app.size.height / 2 / near);
    app.setCamera(
      { zoom: near, x: row.box.x + row.box.w / 2 - app.size.width / 2 / near, y: middle - app.size.height / 2 / near }
    );
  }

  private key(event: KeyboardEvent): void {
    const { app } = this;
    const at = app.selected ? this.place.get(app.selected.id) ?? -1 : -1;
    const row = this.rows[at];
    const go = (to: number): void => {
      const next = this.rows[Math.min(this.rows.length - 1, Math.max(0, to))];
      if (next) void app.select(next.item, true);
    };
    const page = Math.floor(this.body.clientHeight / ROW) - 2;
    const actions: Record<string, () => void> = {
      ArrowDown: () => go(at + 1),
      ArrowUp: () => go(at - 1),
      PageDown: () => go(at + page),
      PageUp: () => go(at - page),
      Home: () => go(0),
      End: () => go(this.rows.length - 1),
      ArrowRight: () => row?.box && !row.box.layout && void app.toggle(row.box),
      ArrowLeft: () => row?.box && row.box.layout && void app.toggle(row.box),
      Enter: () => row?.box && void app.toggle(row.box),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  private async copy(near: HTMLElement): Promise<void> {
    await copyText(csv(this.app, this.rows.map((row) => row.item), this.columns));
    near.classList.add("done");
    setTimeout(() => near.classList.remove("done"), 900);
  }
}

