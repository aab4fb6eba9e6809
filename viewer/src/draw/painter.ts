// Draws a scene with a pen. What is too small to be read is not drawn: a container that is a few pixels high is one block
// of colour, and letters appear when they can be read.

import type { Measure } from "../data/costs";
import type { Graph } from "../data/graph";
import type { Item } from "../data/tree";
import * as format from "../format";
import type { Box, Scene } from "../layout/scene";
import { HEADER, type Layout, type Rect } from "../layout/spec";
import { type Marks, opened, overlaps } from "./camera";
import type { Colours } from "./colours";
import { shapeLabels } from "./labels";
import { type Edges, measure, type Pen, type Style, trace } from "./pen";
import { ink, mix, type Theme } from "./theme";

/** On the screen, in pixels. */
const SPECK = 5;
/** Letters are as high as this, or left out. */
export const LEGIBLE = 9;
/**
 * In units of the world: the type of a box is in the largest letters, its name and what it takes in the smaller ones, which
 * grow to these where they could not be read.
 */
const TYPE = 15.25;
export const SMALL = 12.5;
/** A block larger than this shows what is in it, as specks. */
const LARGE = 160;
/** Shares below this are not drawn, and below that not said on a box. */
const LEAST = 0.0005;
const LITTLE = 0.005;
/** In the world: what is no longer there is drawn with dashes. */
const DASH = [6, 4];

export class Painter {
  constructor(
    private graph: Graph, private colours: Colours, private theme: Theme,
    /** Pixels per unit of the world. */
    private zoom: number, private view: Rect, private marks: Marks,
  ) {}

  paint(scene: Scene, pen: Pen): void {
    this.inside(scene.root, pen, false);
    this.overlay(pen);
  }

  private inside(box: Box, pen: Pen, faded: boolean): void {
    const { layout } = box;
    if (!layout) return;
    const alpha = faded ? 0.3 : this.marks.lit ? 0.6 : 1;
    // Between specks nobody can follow an edge.
    if (box.children.some((child) => child.h * this.zoom >= SPECK)) {
      const gone = this.count("removed", box.item) ? (item: Item) => this.gone(item) : null;
      for (const [kind, edges] of parted(box, layout, gone)) {
        pen.edges(edges, box.x, box.y, { ...this.line(kind), alpha }, this.zoom > 0.3);
      }
    }
    for (const child of box.children) if (overlaps(child, this.view)) this.box(child, pen);
    if (this.small > TYPE || faded) return;
    // In quarters: what changes in every frame of a zoom would be placed anew as often.
    const size = Math.ceil(this.small * 4) / 4;
    for (const { text, x, y, h, pill: framed } of shapeLabels(box, size, (item) => this.shape(item))) {
      if (framed) pill(pen, this.theme, box.x + x, box.y + y + h / 2, text, size, alpha);
      else pen.text(text, box.x + x, box.y + y + h * 0.85, { size, fill: this.theme.muted, alpha });
    }
  }

  /** Residuals are heavier than other edges, and what is no longer there has dashes. */
  private line(kind: EdgeKind): Style {
    const { edge, residual } = this.theme;
    const width = Math.max(1.3, 0.75 / this.zoom);
    if (kind === "residual") return { stroke: residual, width: 2 * width };
    return { stroke: edge, width, dash: kind === "former" ? DASH : undefined };
  }

  private count(measure: Measure, item: Item): number {
    return this.colours.costs.item(measure, item);
  }

  /** Whether all of an item is removed. */
  private gone(item: Item): boolean {
    return this.count("removed", item) > item.last - item.first;
  }

  private box(box: Box, pen: Pen): void {
    const fade = this.fade(box);
    if (box.layout && opened(box, this.zoom)) this.container(box, pen, fade);
    else if (box.h * this.zoom < SPECK) this.speck(box, pen, fade);
    else if (box.layout || this.small > TYPE) this.block(box, pen, fade);
    else this.card(box, pen, fade);
  }

  /** How much of an item is seen where only some nodes are lit. */
  private fade(box: Box): number {
    const { litBefore } = this.marks;
    if (!litBefore) return 1;
    const { first, last } = box.item;
    return litBefore[last + 1] > litBefore[first] ? 1 : 0.26;
  }

  private speck(box: Box, pen: Pen, alpha: number): void {
    const look = this.colours.look(box.item);
    const fill = mix(this.theme.canvas, look.colour, 0.75);
    pen.rect(box.x, box.y, box.w, box.h, 0, { fill, alpha });
  }

  /** From afar: one colour, with the name and the share in large type, over specks of what is in it. */
  private block(box: Box, pen: Pen, alpha: number): void {
    const { theme, zoom } = this;
    const { item } = box;
    const look = this.colours.look(item);
    const fill = box.layout ? mix(theme.card, look.colour, theme.dark ? 0.3 : 0.22) : look.fill;
    if (item.kind === "fold") stack(box, pen, mix(theme.border, look.colour, 0.35), fill, alpha);
    const stroke = mix(theme.border, look.colour, 0.35);
    pen.rect(box.x, box.y, box.w, box.h, 9, { fill, stroke, width: Math.max(1.1, 0.6 / zoom), alpha });
    const large = Math.min(box.w, box.h) * zoom > LARGE;
    if (large) this.inside(box, pen, true);
    const share = this.colours.share(item);
    const room = box.w - 4 / zoom;
    const whole = item.kind === "fold" ? `${item.label} × ${item.count}` : this.title(item, box);
    // What is too long is told by its end: of layers.17 that is what differs.
    const name = measure(whole, LEGIBLE / zoom, 600) <= room ? whole : (whole.split(".").pop() ?? whole);
    const lines = share < LITTLE ? [name] : [name, format.percent(share)];
    const most = (large ? 22 : 14) / zoom;
    const height = (count: number): number => Math.min((box.h - 8) / (1.25 * count), most);
    if (height(lines.length) * zoom < LEGIBLE) lines.length = 1;
    // As large as the name fits; in small boxes it is cut instead.
    const widest = Math.max(...lines.map((line) => measure(line, 1, 600)));
    const size = Math.max(LEGIBLE / zoom, Math.min(height(lines.length), room / widest));
    if (height(lines.length) * zoom >= LEGIBLE && room > 2 * size) {
      const ground = large ? mix(theme.card, look.colour, 0.1) : fill;
      if (large) {
        const w = Math.min(room, Math.max(...lines.map((l) => measure(l, size, 600)))) + size;
        const h = size * (1.25 * lines.length + 0.5);
        pen.rect(box.x + (box.w - w) / 2, box.y + (box.h - h) / 2, w, h, size / 2, { fill: ground, alpha: 0.9 });
      }
      const { text, muted } = ink(ground);
      lines.forEach((line, i) => pen.text(
        line, box.x + box.w / 2, box.y + box.h / 2 + size * (1.25 * (i - (lines.length - 1) / 2) + 0.36),
        { size, weight: i ? 500 : 600, fill: i ? muted : text, align: "center", max: room, alpha },
      ));
    }
    this.flags(box, pen, alpha);
  }

  private container(box: Box, pen: Pen, fade: number): void {
    const { theme, zoom } = this;
    const { item } = box;
    const fill = theme.nest[box.depth % theme.nest.length];
    if (item.kind === "fold") stack(box, pen, theme.nestBorder, fill, fade);
    const look = this.colours.look(item);
    const rim = Math.max(1, 0.6 / zoom);
    const gone = this.gone(item);
    const outline = gone ? { stroke: look.colour, dash: DASH } : { stroke: theme.nestBorder };
    pen.rect(box.x, box.y, box.w, box.h, 10, { fill, width: rim, alpha: fade, ...outline });
    const tint = mix(fill, look.colour, gone ? 0.05 : theme.dark ? 0.2 : 0.13);
    const [r, right] = [9.5, box.w - 0.5];
    pen.path(
      `M0.5 ${HEADER}V${r}Q0.5 0.5 ${r} 0.5H${right - r}Q${right} 0.5 ${right} ${r}V${HEADER}Z`, box.x, box.y,
      { fill: tint, alpha: fade },
    );
    this.inside(box, pen, fade < 1);
    this.header(box, pen, fade);
    this.flags(box, pen, fade);
  }

  /** As of a card: the name with what it takes, and beneath it the class; from afar the name alone. */
  private header(box: Box, pen: Pen, alpha: number): void {
    const { theme, zoom } = this;
    const size = Math.min(HEADER - 10, this.small);
    if (size * zoom < LEGIBLE * 0.999) return;
    const middle = box.y + (size > TYPE || !box.item.cls ? HEADER / 2 : 15);
    chevron(pen, box.x + 13, middle, true, theme.muted, alpha);
    const [left, right] = [box.x + 25, box.x + box.w - 12];
    this.first(box, pen, left, right, middle + size * 0.35, size, theme, alpha);
    if (size <= TYPE) this.type(box.item.cls, pen, left, right, box.y + 37, theme.text, alpha);
  }

  /** The line with the name, how often it is there, and at its end what all of them take, with their share. */
  private first(
    box: Box, pen: Pen, left: number, right: number, y: number, size: number,
    { text, muted }: { text: string; muted: string }, alpha: number,
  ): void {
    const { item } = box;
    const name = this.title(item, box);
    // One that only repeats the operator is none.
    const title = (!item.path && name === this.graph.nodes[item.node]?.op && this.shape(item)) || name;
    const repeated = item.kind === "fold" ? repeat(item, box) : "";
    const badge = repeated && measure(repeated, size, 650) + 18;
    const { figure } = this.colours.look(item);
    const share = this.colours.share(item);
    const said = share < LITTLE ? [] : [format.percent(share)];
    const room = right - left - Number(badge) - 10 - Math.min(measure(title, size, 600), (right - left) * 0.6);
    const fits = [[figure, ...said].filter(Boolean).join(" · "), ...said, figure]
      .find((t) => measure(t, size, 500) <= room) ?? "";
    pen.text(fits, right, y, { size, weight: 500, fill: muted, align: "right", alpha });
    const end = right - (fits ? measure(fits, size, 500) + 10 : 0) - Number(badge);
    pen.text(title, left, y, { size, weight: 600, fill: text, max: end - left, alpha });
    const at = left + Math.min(measure(title, size, 600), end - left) + 6;
    if (repeated) pill(pen, this.theme, at, y - size * 0.35, repeated, size, alpha);
  }

  /** Class or operator in the largest letters, or where these do not fit in smaller ones, at least as large as the name. */
  private type(said: string, pen: Pen, left: number, right: number, y: number, fill: string, alpha: number): void {
    const size = Math.min(TYPE, Math.max(this.small, (right - left) / measure(said, 1, 600)));
    pen.text(said, left, y, { size, weight: 600, fill, max: right - left, alpha });
  }

  private card(box: Box, pen: Pen, alpha: number): void {
    const { theme } = this;
    const { item } = box;
    const node = item.node >= 0 ? this.graph.nodes[item.node] : null;
    const terminal = node?.kind === "input" || node?.kind === "output";
    const look = this.colours.look(item);
    const gone = this.gone(item);
    const fill = gone ? theme.canvas : terminal ? theme.card : look.fill;
    const radius = terminal ? box.h / 2 : node ? 7 : 9;
    const hovered = this.marks.hovered === box;
    const rim = terminal ? theme.border : mix(theme.border, look.colour, 0.35);
    const stroke = gone ? look.colour : node?.error ? theme.error : hovered ? theme.muted : rim;
    if (item.kind === "fold") stack(box, pen, mix(theme.border, look.colour, 0.35), fill, alpha);
    pen.rect(
      box.x, box.y, box.w, box.h, radius,
      { fill, stroke, width: node?.error ? 2 : 1.1, dash: gone ? DASH : undefined, alpha },
    );
    if (!terminal && !this.flat) {
      pen.rect(box.x + 5, box.y + 8, 3.5, box.h - 16, 1.75, { fill: look.colour, alpha });
    }
    const letters = gone ? { text: theme.muted, muted: theme.muted } : ink(fill);
    if (terminal) {
      pen.text(this.title(item, box), box.x + box.w / 2, box.y + box.h / 2 + 4.2, {
        size: this.small, weight: 550, fill: theme.muted, align: "center", max: box.w - 20, alpha,
      });
      return;
    }
    const left = box.x + 15;
    const right = box.x + box.w - 11;
    this.first(box, pen, left, right, box.y + 18, this.small, letters, alpha);
    const lower = box.y + 36;
    if (!node) chevron(pen, right - 3, lower - 5, false, letters.muted, alpha);
    else if (look.mark) {
      pen.text(
        look.mark, right, lower,
        { size: this.small, weight: 600, fill: mix(letters.text, look.colour, 0.75), align: "right", alpha },
      );
    }
    if (box.residuals) loop(box, pen, this.line("residual"), alpha);
    this.type(this.subtitle(item), pen, left, right - 16, lower, letters.text, alpha);
    this.bar(box, pen, mix(fill, letters.text, 0.1), this.flat ? letters.text : look.colour, alpha);
    this.flags(box, pen, alpha);
  }

  /** The smaller letters of a box, as high as can be read. */
  private get small(): number {
    return Math.max(SMALL, LEGIBLE / this.zoom);
  }

  /** Full fills need no stripe. */
  private get flat(): boolean {
    return this.colours.scale() !== null;
  }

  /** The share of the whole, along the lower rim. */
  private bar(box: Box, pen: Pen, ground: string, colour: string, alpha: number): void {
    const share = this.colours.share(box.item);
    if (share < LEAST) return;
    const [x, y, w] = [box.x + 15, box.y + box.h - 9, box.w - 26];
    pen.rect(x, y, w, 3.5, 1.75, { fill: ground, alpha });
    pen.rect(x, y, Math.max(2, w * Math.min(1, share)), 3.5, 1.75, { fill: colour, alpha });
  }

  /** Errors and unknown costs are seen from outside. */
  private flags(box: Box, pen: Pen, alpha: number): void {
    const { item } = box;
    let x = box.x + box.w - 4;
    const size = Math.min(24, Math.max(10, LEGIBLE / this.zoom));
    const flag = (said: string, fill: string): void => {
      // What cannot be read any more is a spot.
      const text = size * this.zoom < LEGIBLE * 0.999 ? "" : said;
      const width = measure(text, size, 700) + size;
      x -= width;
      // On the rim, clear of the shape above it and of the figure beneath.
      pen.rect(x, box.y - size * 0.85, width, size * 1.5, size * 0.75, { fill, alpha: Math.max(alpha, 0.6) });
      pen.text(text, x + width / 2, box.y + size * 0.25, { size, weight: 700, fill: ink(fill).text, align: "center" });
      x -= 4;
    };
    if (this.count("errors", item)) flag("error", this.theme.error);
    const unknown = this.count("unknown", item);
    if (unknown) flag(`${unknown} unknown`, this.theme.dark ? "#e79fc6" : "#a8447b");
    const removed = this.count("removed", item);
    if (removed && !this.gone(item)) {
      const { dark, light } = this.colours.marks.changes.removed;
      flag(`${removed} removed`, this.theme.dark ? dark : light);
    }
    const breaks = this.count("breaks", item);
    if (breaks) flag(breaks === 1 ? "graph break" : `${breaks} graph breaks`, this.theme.hit);
  }

  private title(item: Item, box: Box): string {
    if (item.node >= 0) return item.label;
    const label = box.shown !== item ? box.shown.label : item.label;
    return item.call ? `${label} (call ${item.call})` : label || item.cls || "model";
  }

  /** Class or operator, and what it does ("Conv2d 7×7 /2"): of a closed module that does one such thing, too. */
  private subtitle(item: Item): string {
    const { graph } = this;
    if (item.node < 0) {
      let only = "";
      for (let n = item.first; n <= item.last; n++) {
        const said = graph.details[n];
        if (said && only && item.kind !== "fold") return item.cls || item.kind;
        only = said || only;
      }
      return `${item.cls || item.kind} ${item.kind === "fold" ? "" : only}`.trim();
    }
    const node = graph.nodes[item.node];
    if (node.op === "item") return node.source.split("/").pop() || node.op;
    return [item.path ? item.cls : node.op, graph.details[item.node]].filter(Boolean).join(" ");
  }

  /** The shape of the first result. */
  private shape(item: Item): string {
    const inner = item.kind === "fold" ? item.children[0] : item;
    if (inner.node < 0) return inner.output;
    const [value] = this.graph.nodes[inner.node].outputs;
    return value === undefined ? "" : format.shape(this.graph.values[value].shape);
  }

  private overlay(pen: Pen): void {
    const { marks, theme, zoom } = this;
    const width = Math.max(2, 1.6 / zoom);
    for (const [list, stroke, dash] of [[marks.into, theme.into, undefined], [marks.out, theme.out, [7, 4]]] as const) {
      for (const { box, points } of list) {
        pen.path(trace(points), box.x, box.y, { stroke, width, dash });
      }
    }
    const ring = (box: Box, colour: string, out: number): void => {
      const by = out / zoom;
      pen.rect(
        box.x - by, box.y - by, box.w + 2 * by, box.h + 2 * by, 10 + by,
        { stroke: colour, width: 2.4 / Math.min(zoom, 1.2) },
      );
    };
    if (marks.current && marks.current !== marks.selected) ring(marks.current, theme.hit, 4);
    if (marks.selected?.parent) ring(marks.selected, theme.accent, 3);
  }
}

function repeat(item: Item, box: Box): string {
  const at = box.shown !== item ? item.children.indexOf(box.shown) : -1;
  return at > 0 ? `${at + 1} of ${item.count}` : `× ${item.count}`;
}

/** What stands behind the first of several. */
export function stack(box: Box, pen: Pen, stroke: string, fill: string, alpha: number): void {
  for (const step of [8, 4]) {
    pen.rect(box.x + step, box.y + step, box.w, box.h, 10, { fill, stroke, width: 1, alpha: alpha * 0.85 });
  }
}

/** A rounded label; returns its width. */
export function pill(
  pen: Pen, theme: Theme, x: number, middle: number, text: string, size: number, alpha: number,
): number {
  const width = measure(text, size, 650) + 12;
  pen.rect(x, middle - size * 0.78, width, size * 1.56, size, { fill: mix(theme.card, theme.accent, 0.16), alpha });
  pen.text(text, x + 6, middle + size * 0.36, { size, weight: 650, fill: mix(theme.text, theme.accent, 0.8), alpha });
  return width;
}

/** Residuals within a closed box: a line around its side. */
function loop({ x, y, h }: Box, pen: Pen, style: Style, alpha: number): void {
  pen.path(`M0 9C-13 9 -13 ${h - 9} -3 ${h - 9}`, x, y, { ...style, alpha });
  pen.path(`M0 ${h - 9}L-7 ${h - 13.5}V${h - 4.5}Z`, x, y, { fill: style.stroke, alpha });
}

/** Pointing down where a module is open, and to the right where it is closed. */
function chevron(pen: Pen, x: number, y: number, open: boolean, stroke: string, alpha: number): void {
  pen.path(open ? "M-3.4 -1.7L0 1.7L3.4 -1.7" : "M-1.7 -3.4L1.7 0L-1.7 3.4", x, y, { stroke, width: 1.5, alpha });
}

type EdgeKind = "lasting" | "residual" | "former";

const known = new WeakMap<Box | Layout, [EdgeKind, Edges][]>();

/** The edges of a container by kind; equal containers share them, unless something in one is gone. */
export function parted(
  box: Pick<Box, "children" | "edges">, layout: Layout, isGone: ((item: Item) => boolean) | null,
): [EdgeKind, Edges][] {
  const key = isGone ? (box as Box) : layout;
  let found = known.get(key);
  if (!found) {
    const gone = box.children.map((child) => isGone?.(child.item) ?? false);
    const of = box.edges.map((e): EdgeKind => (gone[e.from] || gone[e.to] ? "former" : e.residual ? "residual" : "lasting"));
    found = (["lasting", "residual", "former"] as const).flatMap((kind): [EdgeKind, Edges][] => {
      const kept = of.flatMap((k, i) => (k === kind ? i : []));
      const edges = kept.map((i) => layout.edges[i]);
      return kept.length ? [[kind, { edges, heads: Uint8Array.from(kept, (i) => layout.heads[i]) }]] : [];
    });
    known.set(key, found);
  }
  return found;
}
