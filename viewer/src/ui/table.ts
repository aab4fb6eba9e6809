// The table of modules and nodes: as a tree that is open where the graph is open, or all nodes in one list.
// Only the rows in sight exist. Choosing and scrolling go both ways between table and graph.

import type { App } from "../app";
import type { Item } from "../data/tree";
import type { Box } from "../layout/scene";
import { copyText } from "./clipboard";
import { COLUMNS, columnsOf, csv } from "./columns";
import { button, fill, h, ICONS, onFrame } from "./dom";
import { ROW, type Row, rowElement } from "./row";

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
    this.body = h("div", { class: "table-body", role: "treegrid", tabindex: "0", "aria-label": "Modules and nodes" }, this.head, this.space);
    this.element = h("section", { class: "table" }, this.tools(), this.body);
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
    return h("div", { class: "table-tools" }, h("div", { class: "choices joined" }, tree, nodes), h("span", { class: "spring" }), step, copy);
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
      for (const child of this.sort(app.scene.root.children.map((box) => ({ item: box.item, box, depth: 0 })))) add(child.box as Box, 0);
    }
    this.place = new Map(this.rows.map((row, i) => [row.item.id, i]));
    this.space.style.setProperty("height", `${this.rows.length * ROW}px`);
    this.drawHead();
    this.redraw();
  }

  private sort(rows: Row[]): Row[] {
    const column = COLUMNS.find((c) => c.key === this.sortKey);
    if (!column) return rows;
    const values = new Map(rows.map((r) => [r, column.value(this.app, r.item)]));
    return rows.sort((a, b) => {
      const [x, y] = [values.get(a) as number | string, values.get(b) as number | string];
      return typeof x === "number" ? (y as number) - x : x.localeCompare(String(y), "en", { numeric: true });
    });
  }

  /** Names take what room the figures leave that are seen whole. */
  private widen(): void {
    const figures = columnsOf(this.app).slice(1).map((c) => c.width);
    const first = (n: number): number => figures.slice(0, n).reduce((sum, w) => sum + w, 0);
    const rest = [figures.length, 4, 3, 2, 1].map((n) => this.body.clientWidth - first(n)).find((w) => w >= 175) ?? 175;
    for (const part of [this.head, this.space]) part.style.setProperty("min-width", `${rest + first(figures.length)}px`);
    this.body.style.setProperty("--columns", [rest, ...figures].map((w) => `${w}px`).join(" "));
  }

  private drawHead(): void {
    const columns = columnsOf(this.app);
    this.widen();
    fill(this.head, ...columns.map((c) =>
      h("button", {
        type: "button", class: c.key === "name" ? "cell" : "cell number", role: "columnheader",
        "aria-sort": this.sortKey === c.key ? (typeof c.value === "string" ? "ascending" : "descending") : "none",
        title: `Sort by ${c.name.toLowerCase()}`,
        onclick: () => {
          this.sortKey = this.sortKey === c.key ? "" : c.key;
          this.rebuild();
        },
      }, c.name, this.sortKey === c.key ? " ↓" : ""),
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
      const row = rowElement(this.app, this.rows[at], at);
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
    if (!this.inStep || this.flat || this.sortKey || app.following || performance.now() - Math.max(this.movedGraph, this.touched) < 400) return;
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
    app.setCamera({ zoom: near, x: row.box.x + row.box.w / 2 - app.size.width / 2 / near, y: middle - app.size.height / 2 / near });
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
    await copyText(csv(this.app, this.rows.map((row) => row.item)));
    near.classList.add("done");
    setTimeout(() => near.classList.remove("done"), 900);
  }
}

