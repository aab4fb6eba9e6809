// The table of modules and nodes: as a tree that is open where the graph is open, or all nodes in one list.
// Only the rows in sight exist. Choosing and scrolling go both ways between table and graph.

import type { App } from "../app";
import type { Compared } from "../data/answers";
import type { Measure } from "../data/costs";
import type { Item } from "../data/tree";
import { show } from "../draw/colours";
import * as format from "../format";
import type { Box } from "../layout/scene";
import { button, copyText, div, fill, h, ICONS, onFrame, onKey, press, span } from "./dom";
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

/** How much of a measure an item has: in all repetitions, in one of them, or by itself. */
type Amount = (measure: Measure) => (app: App, item: Item) => number;
const total: Amount = (measure) => (app, item) => app.costs.share(measure, item, app.view.apart).total;
const each: Amount = (measure) => (app, item) => app.costs.share(measure, item).each;
const own: Amount = (measure) => (app, item) => app.costs.item(measure, item);

const percent = (value: number): string => (value < 0.0005 ? "" : format.percent(value));
const flops = (value: number): string => format.count(value).replace(/([A-Za-z])$/, " $1");
const written = (measure: Measure, value: number): string => (measure === "flops" ? flops(value) : show(measure, value));
const text = (name: string, key: string, width: number, value: (app: App, item: Item) => string): Column =>
  ({ name, key, width, value, text: value });

const MEASURES: [string, Measure, number][] = [
  ["Measured", "measured", 76], ["Time", "time", 76], ["FLOPs", "flops", 84], ["Bytes", "bytes", 84],
  ["Host", "host", 76],
];

/** By how much an item differs from the other profile, or in the list of all nodes (`flat`) a node alone. */
const difference = (name: string, measure: Compared, width: number, flat: boolean): Column => figure(
  name, `${measure}_more`, width,
  (app, item) => app.difference?.more(measure, flat ? { first: item.first, last: item.last } : item, app.view.apart) ?? 0,
  (value) => `${value > 0 ? "+" : "−"}${written(measure, Math.abs(value))}`,
);

/**
 * Of the tree what all repetitions take, and then what one does; of the list of all nodes (`flat`) what each takes itself,
 * and where it stands. Time is a column where there is any, and what differs where there is another profile.
 */
function columnsOf(app: App, flat: boolean): Column[] {
  const amount = flat ? own : total;
  const measures = MEASURES.filter(([, measure]) => app.costs.total(measure));
  const share = flat ? (_: App, item: Item): number => own(app.metric)(app, item) / (app.costs.total(app.metric) || 1)
    : (_: App, item: Item): number => app.colours.share(item);
  return [
    { name: "Name", key: "name", width: 0, value: (_, i) => i.path || i.label, text: (_, i) => nameOf(i) },
    ...(app.difference ? [
      ...(app.costs.total("time") ? [difference("Δ time", "time", 76, flat)] : []),
      difference("Δ FLOPs", "flops", 86, flat), difference("Δ bytes", "bytes", 92, flat),
    ] : []),
    figure("Share", "share", 84, share, percent),
    ...measures.map(([name, measure, width]) => figure(name, measure, width, amount(measure), (v) => written(measure, v))),
    ...(flat ? [text("Path", "path", 190, (_, i) => i.path || (i.parent?.path ?? ""))] : [
      ...measures.slice(Number(measures[0]?.[1] === "measured")).map(([name, measure, width]) =>
        figure(`${name} each`, `${measure}_each`, width, each(measure), (v) => written(measure, v))),
      figure("Times", "times", 54, (_, i) => app.costs.share("kernels", i, app.view.apart).times, (v) => (v > 1 ? `× ${v}` : "")),
    ]),
    figure("Parameters", "parameters", 84, (_, i) => app.costs.parameterCount(i), (v) => format.count(v)),
    figure("Intensity", "intensity", 72, (_, i) => app.costs.intensity(i) ?? 0, format.intensity),
    figure("Memory made", "memory", 84, amount("memory"), format.size),
    text("Class or operator", "kind", 150, (_, i) => app.model.graph.nodes[i.node]?.op ?? i.cls),
    text("Output", "output", 140, outputOf),
  ];
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

function nameOf({ node, label, call }: Item): string {
  return node < 0 && call ? `${label} (call ${call})` : label;
}

function outputOf({ model: { graph } }: App, item: Item): string {
  if (item.output) return item.output;
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
    h("span", { class: "cell name", role: "gridcell", style: { "padding-left": `${8 + depth * 13}px` } },
      toggle,
      h("span", { class: "swatch", style: { background: look.colour } }),
      span(branch ? "label strong" : "label", nameOf(item)),
      item.kind === "fold" ? span("pill", `× ${item.count}`) : null),
    ...columns.slice(1).map((c) => {
      const [value, text] = [c.value(app, item), c.text(app, item)];
      const part = c.key === "share" ? { "--share": `${Math.min(1, Number(value)) * 100}%` } : undefined;
      const kind = part ? "cell number share" : typeof value === "number" ? "cell number" : "cell";
      return h("span", { class: kind, role: "gridcell", style: part, title: kind === "cell" ? text : undefined }, text);
    }),
  );
}

export class Table {
  readonly element: HTMLElement;
  private body: HTMLElement;
  private space: HTMLElement;
  private head: HTMLElement;
  private columns: Column[] = [];
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
    const words = { class: "table-body", role: "treegrid", tabindex: "0", "aria-label": "Modules and nodes" };
    this.body = h("div", words, this.head, this.space);
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
    app.on(() => this.rebuild(), "scene", "look");
    app.on(redraw, "lit");
    // A row under the pointer is marked, not made anew: it would be entered again.
    app.on(onFrame(() => {
      for (const [at, row] of this.drawn) row.classList.toggle("hovered", app.hovered?.item === this.rows[at]?.item);
    }), "hover");
    app.on(() => {
      this.show(app.selected);
      redraw();
    }, "select");
    let pause = 0;
    app.on(() => {
      pause ||= window.setTimeout(() => {
        pause = 0;
        this.followGraph();
      }, 120);
    }, "camera");
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
    this.columns = columnsOf(app, this.flat);
    const below = (inside: Box, depth: number): Row[] =>
      this.sort(inside.children.map((box): Row & { box: Box } => ({ item: box.item, box, depth })))
        .flatMap((row) => [row, ...below(row.box, depth + 1)]);
    if (this.flat) this.rows = this.sort(app.tree.leaf.map((item) => ({ item, box: null, depth: 0 })));
    else this.rows = app.scene ? below(app.scene.root, 0) : [];
    this.place = new Map(this.rows.map((row, i) => [row.item.id, i]));
    this.space.style.setProperty("height", `${this.rows.length * ROW}px`);
    this.drawHead();
    this.redraw();
  }

  private sort<R extends Row>(rows: R[]): R[] {
    const column = this.columns.find((c) => c.key === this.sortKey);
    if (!column) return rows;
    const values = rows.map((row) => ({ row, value: column.value(this.app, row.item) }));
    values.sort(({ value: x }, { value: y }) =>
      typeof x === "number" ? (y as number) - x : x.localeCompare(String(y), "en", { numeric: true }));
    return values.map(({ row }) => row);
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
    this.widen();
    fill(this.head, ...this.columns.map(({ name, key }) => {
      const [kind, sorted] = [key === "name" ? "cell" : "cell number", this.sortKey === key];
      const sort = press([name, sorted ? " ↓" : ""], () => {
        this.sortKey = sorted ? "" : key;
        this.rebuild();
      }, { title: `Sort by ${name.toLowerCase()}` });
      return h("div", { class: kind, role: "columnheader", "aria-sort": sorted ? "descending" : "none" }, sort);
    }));
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
    const { camera, size, scene } = app;
    const moved = performance.now() - Math.max(this.movedGraph, this.touched) < 400;
    if (!this.inStep || this.flat || this.sortKey || app.following || moved || !scene) return;
    const x = camera.x + size.width / 2 / camera.zoom;
    const y = camera.y + size.height / 2 / camera.zoom;
    let at: number | undefined;
    let least = Infinity;
    for (const box of scene.boxes) {
      if (box.layout) continue;
      const distance = (Math.abs(box.y + box.h / 2 - y) * size.width) / size.height + Math.abs(box.x + box.w / 2 - x);
      if (distance < least) [at, least] = [this.place.get(box.item.id), distance];
    }
    if (at !== undefined) this.scrollTo(at, true);
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
    onKey(event, {
      ArrowDown: () => go(at + 1),
      ArrowUp: () => go(at - 1),
      PageDown: () => go(at + page),
      PageUp: () => go(at - page),
      Home: () => go(0),
      End: () => go(this.rows.length - 1),
      ArrowRight: () => row?.box && !row.box.layout && void app.toggle(row.box),
      ArrowLeft: () => row?.box && row.box.layout && void app.toggle(row.box),
      Enter: () => row?.box && void app.toggle(row.box),
    });
  }

  private async copy(near: HTMLElement): Promise<void> {
    await copyText(csv(this.app, this.rows.map((row) => row.item), this.columns));
    near.classList.add("done");
    setTimeout(() => near.classList.remove("done"), 900);
  }
}

