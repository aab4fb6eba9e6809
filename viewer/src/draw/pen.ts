// What the painter draws with: a canvas on the screen, or an SVG document that is exported. Coordinates are the world's; the
// pen knows the camera. The curve of an edge is straight where two of its points share an x or y, round at corners, and
// otherwise an S that leaves and arrives upright.

import { lastOf } from "../data/costs";
import type { Rect } from "../layout/spec";
import { overlaps } from "./camera";
import { FAMILY, font } from "./theme";

export interface Style {
  fill?: string;
  stroke?: string;
  width?: number;
  dash?: readonly number[];
  alpha?: number;
}

export interface TextStyle {
  size: number;
  weight?: number;
  fill: string;
  align?: "left" | "right" | "center";
  /** Longer text is cut with an ellipsis. */
  max?: number;
  alpha?: number;
}

export interface Pen {
  rect(x: number, y: number, w: number, h: number, radius: number, style: Style): void;
  /** Many edges of one container at once. */
  edges(all: Edges, x: number, y: number, style: Style, arrows: boolean): void;
  path(make: (sink: PathSink) => void, x: number, y: number, style: Style): void;
  text(text: string, x: number, y: number, style: TextStyle): void;
}

const measured = new Map<string, number>();
let ruler: CanvasRenderingContext2D | null = null;

export function measure(text: string, size: number, weight = 400): number {
  const key = `${weight}|${text}`;
  let width = measured.get(key);
  if (width === undefined) {
    ruler ??= document.createElement("canvas").getContext("2d");
    if (!ruler) return text.length * size * 0.55;
    ruler.font = font(100, weight);
    width = ruler.measureText(text).width / 100;
    if (measured.size > 50_000) measured.clear();
    measured.set(key, width);
  }
  return width * size;
}

/** Widths change when the letters arrive. */
export function forgetMeasures(): void {
  measured.clear();
  fitted.clear();
}

const fitted = new Map<string, string>();

/** The text, cut at its end to be no wider than `max`. */
export function fit(text: string, size: number, weight: number, max: number): string {
  if (text.length * size * 0.35 <= max && measure(text, size, weight) <= max) return text;
  const key = `${weight}|${Math.round((max / size) * 10)}|${text}`;
  const known = fitted.get(key);
  if (known !== undefined) return known;
  const longest = Math.min(text.length, Math.ceil(max / (size * 0.2)));
  const low = lastOf(longest + 1, (length) => measure(text.slice(0, length) + "…", size, weight) <= max);
  const cut = low ? text.slice(0, low) + "…" : "";
  if (fitted.size > 50_000) fitted.clear();
  fitted.set(key, measure(text, size, weight) <= max ? text : cut);
  return fitted.get(key) as string;
}

/** The edges of one container, and which of them end in an arrow. */
export interface Edges {
  edges: Float32Array[];
  heads: Uint8Array;
}

/** A few edges together, and where they are. */
interface Bundle {
  line: Path2D;
  arrows: Path2D;
  reach: Rect;
}

/** So many edges are drawn, or out of sight, together. */
const BUNDLE = 12;
const bundles = new WeakMap<Edges, Bundle[]>();

function bundled(all: Edges): Bundle[] {
  let found = bundles.get(all);
  if (found) return found;
  bundles.set(all, (found = []));
  const seen = new Set<string>();
  for (let from = 0; from < all.edges.length; from += BUNDLE) {
    const [line, arrows] = [new Path2D(), new Path2D()];
    const [low, high] = [[Infinity, Infinity], [-Infinity, -Infinity]];
    for (let i = from; i < Math.min(from + BUNDLE, all.edges.length); i++) {
      trace(all.edges[i], line, seen);
      if (all.heads[i]) arrow(all.edges[i], arrows);
      all.edges[i].forEach((value, k) => {
        low[k % 2] = Math.min(low[k % 2], value);
        high[k % 2] = Math.max(high[k % 2], value);
      });
    }
    found.push({ line, arrows, reach: { x: low[0], y: low[1], w: high[0] - low[0], h: high[1] - low[1] } });
  }
  return found;
}

export class CanvasPen implements Pen {
  private font = "";
  private from: { e: number; f: number };

  constructor(
    private ctx: CanvasRenderingContext2D,
    /** Pixels per unit. */
    private zoom: number,
    /** What is seen; edges elsewhere are left out. */
    private view?: Rect,
  ) {
    this.from = ctx.getTransform();
  }

  rect(x: number, y: number, w: number, h: number, radius: number, style: Style): void {
    const { ctx } = this;
    // Corners too small to be seen as round are drawn square, which takes a fraction of the time.
    ctx.beginPath();
    if (radius * this.zoom < 1.2) ctx.rect(x, y, w, h);
    else ctx.roundRect(x, y, w, h, Math.min(radius, w / 2, h / 2));
    this.finish(style);
  }

  edges(all: Edges, x: number, y: number, style: Style, arrows: boolean): void {
    const { ctx } = this;
    ctx.save();
    ctx.translate(x, y);
    ctx.globalAlpha = style.alpha ?? 1;
    ctx.strokeStyle = style.stroke ?? "#000";
    ctx.lineWidth = style.width ?? 1;
    ctx.setLineDash((style.dash as number[]) ?? []);
    ctx.fillStyle = style.stroke ?? "#000";
    for (const { line, arrows: heads, reach } of bundled(all)) {
      if (this.view && !overlaps(this.view, { ...reach, x: reach.x + x, y: reach.y + y })) continue;
      ctx.stroke(line);
      if (arrows) ctx.fill(heads);
    }
    ctx.restore();
  }

  path(make: (sink: PathSink) => void, x: number, y: number, style: Style): void {
    const { ctx } = this;
    ctx.save();
    ctx.translate(x, y);
    ctx.beginPath();
    make(ctx);
    this.finish(style);
    ctx.restore();
  }

  text(text: string, x: number, y: number, style: TextStyle): void {
    const { ctx } = this;
    const shown = style.max === undefined ? text : fit(text, style.size, style.weight ?? 400, style.max);
    if (!shown) return;
    // In whole quarters of pixels: letters of a size that is new in every frame of a zoom take several times as long.
    const letters = font(Math.floor(style.size * this.zoom * 4 + 1e-6) / 4, style.weight);
    if (letters !== this.font) ctx.font = this.font = letters;
    const { e, f } = this.from;
    ctx.globalAlpha = style.alpha ?? 1;
    ctx.fillStyle = style.fill;
    ctx.textAlign = style.align ?? "left";
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.fillText(shown, x * this.zoom + e, y * this.zoom + f);
    ctx.setTransform(this.zoom, 0, 0, this.zoom, e, f);
  }

  private finish(style: Style): void {
    const { ctx } = this;
    ctx.globalAlpha = style.alpha ?? 1;
    if (style.fill) {
      ctx.fillStyle = style.fill;
      ctx.fill();
    }
    if (style.stroke) {
      ctx.strokeStyle = style.stroke;
      ctx.lineWidth = style.width ?? 1;
      if (style.dash) ctx.setLineDash(style.dash as number[]);
      ctx.stroke();
      if (style.dash) ctx.setLineDash([]);
    }
  }
}

const ESCAPES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

export function escapeXml(text: string): string {
  return text.replace(/[&<>"']/g, (c) => ESCAPES[c])
    .replace(/[^\t\n\u0020-\ud7ff\ue000-\ufffd]/g, (c) => (/[\ud800-\udfff]/.test(c) ? c : "\ufffd"));
}

export class SvgPen implements Pen {
  private parts: string[] = [];

  rect(x: number, y: number, w: number, h: number, radius: number, style: Style): void {
    const r = Math.min(radius, w / 2, h / 2);
    const place = `x="${round(x)}" y="${round(y)}" width="${round(w)}" height="${round(h)}"`;
    this.parts.push(`<rect ${place}${r > 0 ? ` rx="${round(r)}"` : ""}${looks(style)}/>`);
  }

  edges(all: Edges, x: number, y: number, style: Style, arrows: boolean): void {
    if (!all.edges.length) return;
    const line = new SvgPath(x, y);
    const heads = new SvgPath(x, y);
    const seen = new Set<string>();
    for (let i = 0; i < all.edges.length; i++) {
      trace(all.edges[i], line, seen);
      if (all.heads[i]) arrow(all.edges[i], heads);
    }
    this.parts.push(`<path d="${line.d}"${looks({ ...style, fill: undefined })}/>`);
    if (arrows) this.parts.push(`<path d="${heads.d}"${looks({ fill: style.stroke, alpha: style.alpha })}/>`);
  }

  path(make: (sink: PathSink) => void, x: number, y: number, style: Style): void {
    const path = new SvgPath(x, y);
    make(path);
    this.parts.push(`<path d="${path.d}"${looks(style)}/>`);
  }

  text(text: string, x: number, y: number, style: TextStyle): void {
    const shown = style.max === undefined ? text : fit(text, style.size, style.weight ?? 400, style.max);
    if (!shown) return;
    const anchor = { left: "start", right: "end", center: "middle" }[style.align ?? "left"];
    const letters = ` font-size="${round(style.size)}" font-weight="${style.weight ?? 400}" text-anchor="${anchor}"`;
    const look = looks({ fill: style.fill, alpha: style.alpha });
    this.parts.push(`<text x="${round(x)}" y="${round(y)}"${letters}${look}>${escapeXml(shown)}</text>`);
  }

  /** The document, showing the world's rectangle x, y, w, h at a size of `width` by `height`. */
  end(
    view: { x: number; y: number; w: number; h: number }, width: number, height: number, background: string,
    title: string,
  ): string {
    const box = [view.x, view.y, view.w, view.h].map(round).join(" ");
    const paper = `x="${round(view.x)}" y="${round(view.y)}" width="${round(view.w)}" height="${round(view.h)}"`;
    const size = `width="${round(width)}" height="${round(height)}" viewBox="${box}"`;
    return `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="${escapeXml(FAMILY)}">` +
      `<title>${escapeXml(title)}</title><rect ${paper} fill="${background}"/>${this.parts.join("")}</svg>`;
  }
}

function looks(style: Style): string {
  let text = ` fill="${style.fill ?? "none"}"`;
  if (style.stroke) text += ` stroke="${style.stroke}" stroke-width="${round(style.width ?? 1)}"`;
  if (style.dash) text += ` stroke-dasharray="${style.dash.join(" ")}"`;
  if (style.alpha !== undefined && style.alpha < 1) text += ` opacity="${round(style.alpha)}"`;
  return text;
}

export interface PathSink {
  moveTo(x: number, y: number): void;
  lineTo(x: number, y: number): void;
  quadraticCurveTo(cx: number, cy: number, x: number, y: number): void;
  bezierCurveTo(ax: number, ay: number, bx: number, by: number, x: number, y: number): void;
}

const ROUND = 8;

const NOWHERE: PathSink = { moveTo: () => {}, lineTo: () => {}, quadraticCurveTo: () => {}, bezierCurveTo: () => {} };

/** Draw an edge; of what was `seen` (edges share long ways) each piece is drawn once. */
export function trace(points: Float32Array, to: PathSink, seen = new Set<string>()): void {
  const n = points.length / 2;
  let at = [points[0], points[1]] as const;
  let lifted = true;
  for (let i = 1; i < n; i++) {
    const x0 = points[2 * i - 2];
    const y0 = points[2 * i - 1];
    const x = points[2 * i];
    const y = points[2 * i + 1];
    const level = Math.abs(y - y0) < 0.5;
    // A piece is what it is by its end and the points before and after it, at which it may be round.
    const piece = `${x},${y} of ${points.subarray(Math.max(0, 2 * i - 4), 2 * i + 4)}`;
    const known = seen.has(piece);
    if (lifted && !known) to.moveTo(...at);
    lifted = known;
    seen.add(piece);
    const sink = known ? NOWHERE : to;
    at = [x, y];
    if (Math.abs(x - x0) >= 0.5 && !level) {
      const middle = (y0 + y) / 2;
      sink.bezierCurveTo(x0, middle, x, middle, x, y);
      continue;
    }
    const nextLevel = i + 1 < n && Math.abs(points[2 * i + 3] - y) < 0.5;
    const nextUpright = i + 1 < n && Math.abs(points[2 * i + 2] - x) < 0.5;
    if (i + 1 < n && ((level && nextUpright) || (!level && nextLevel))) {
      const nx = points[2 * i + 2];
      const ny = points[2 * i + 3];
      const before = Math.min(ROUND, (Math.abs(x - x0) + Math.abs(y - y0)) / 2);
      const after = Math.min(ROUND, (Math.abs(nx - x) + Math.abs(ny - y)) / 2);
      at = [x + Math.sign(nx - x) * after, y + Math.sign(ny - y) * after];
      sink.lineTo(x - Math.sign(x - x0) * before, y - Math.sign(y - y0) * before);
      sink.quadraticCurveTo(x, y, ...at);
      continue;
    }
    sink.lineTo(x, y);
  }
}

/** A small arrow at the end of an edge. */
export function arrow(points: Float32Array, sink: PathSink, size = 4.5): void {
  const x = points[points.length - 2];
  const y = points[points.length - 1];
  sink.moveTo(x, y);
  sink.lineTo(x - size * 0.7, y - size * 1.35);
  sink.lineTo(x + size * 0.7, y - size * 1.35);
  sink.lineTo(x, y);
}

/** Writes the path as the `d` of an SVG path. */
export class SvgPath implements PathSink {
  d = "";
  constructor(private x = 0, private y = 0) {}
  moveTo(x: number, y: number): void {
    this.d += `M${this.at(x, y)}`;
  }
  lineTo(x: number, y: number): void {
    this.d += `L${this.at(x, y)}`;
  }
  quadraticCurveTo(cx: number, cy: number, x: number, y: number): void {
    this.d += `Q${this.at(cx, cy)} ${this.at(x, y)}`;
  }
  bezierCurveTo(ax: number, ay: number, bx: number, by: number, x: number, y: number): void {
    this.d += `C${this.at(ax, ay)} ${this.at(bx, by)} ${this.at(x, y)}`;
  }
  private at(x: number, y: number): string {
    return `${round(x + this.x)},${round(y + this.y)}`;
  }
}

export function round(value: number): number {
  return Math.round(value * 100) / 100;
}
