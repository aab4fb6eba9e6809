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
  /** The `d` of an SVG path, from this place. */
  path(d: string, x: number, y: number, style: Style): void;
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
    let [line, arrows] = ["", ""];
    const [low, high] = [[Infinity, Infinity], [-Infinity, -Infinity]];
    for (let i = from; i < Math.min(from + BUNDLE, all.edges.length); i++) {
      line += trace(all.edges[i], seen);
      if (all.heads[i]) arrows += arrow(all.edges[i]);
      all.edges[i].forEach((value, k) => {
        low[k % 2] = Math.min(low[k % 2], value);
        high[k % 2] = Math.max(high[k % 2], value);
      });
    }
    const reach = { x: low[0], y: low[1], w: high[0] - low[0], h: high[1] - low[1] };
    found.push({ line: new Path2D(line), arrows: new Path2D(arrows), reach });
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

  path(d: string, x: number, y: number, style: Style): void {
    const { ctx } = this;
    ctx.save();
    ctx.translate(x, y);
    this.finish(style, new Path2D(d));
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

  private finish(style: Style, path?: Path2D): void {
    const { ctx } = this;
    ctx.globalAlpha = style.alpha ?? 1;
    if (style.fill) {
      ctx.fillStyle = style.fill;
      if (path) ctx.fill(path);
      else ctx.fill();
    }
    if (style.stroke) {
      ctx.strokeStyle = style.stroke;
      ctx.lineWidth = style.width ?? 1;
      if (style.dash) ctx.setLineDash(style.dash as number[]);
      if (path) ctx.stroke(path);
      else ctx.stroke();
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
    const seen = new Set<string>();
    this.path(all.edges.map((points) => trace(points, seen)).join(""), x, y, { ...style, fill: undefined });
    const heads = all.edges.filter((_, i) => arrows && all.heads[i]);
    this.path(heads.map(arrow).join(""), x, y, { fill: style.stroke, alpha: style.alpha });
  }

  path(d: string, x: number, y: number, style: Style): void {
    if (d) this.parts.push(`<path d="${d}" transform="translate(${place(x, y)})"${looks(style)}/>`);
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

const ROUND = 8;

/** The `d` of an edge; of what was `seen` (edges share long ways) each piece is drawn once. */
export function trace(points: Float32Array, seen = new Set<string>()): string {
  let d = "";
  let at = place(points[0], points[1]);
  let lifted = true;
  for (let i = 2; i < points.length; i += 2) {
    const [x0, y0, x, y, nx, ny] = points.subarray(i - 2, i + 4);
    const level = Math.abs(y - y0) < 0.5;
    // A piece is what it is by its end and the points before and after it, at which it may be round.
    const piece = `${x},${y} of ${points.subarray(Math.max(0, i - 4), i + 4)}`;
    const known = seen.has(piece);
    if (lifted && !known) d += `M${at}`;
    lifted = known;
    seen.add(piece);
    let drawn = "";
    if (Math.abs(x - x0) >= 0.5 && !level) {
      const middle = (y0 + y) / 2;
      drawn = `C${place(x0, middle)} ${place(x, middle)} `;
    } else if (Math.abs(level ? nx - x : ny - y) < 0.5) {
      const before = Math.min(ROUND, (Math.abs(x - x0) + Math.abs(y - y0)) / 2);
      const after = Math.min(ROUND, (Math.abs(nx - x) + Math.abs(ny - y)) / 2);
      at = place(x + Math.sign(nx - x) * after, y + Math.sign(ny - y) * after);
      if (!known) d += `L${place(x - Math.sign(x - x0) * before, y - Math.sign(y - y0) * before)}Q${place(x, y)} ${at}`;
      continue;
    }
    at = place(x, y);
    if (!known) d += (drawn || "L") + at;
  }
  return d;
}

/** A small arrow at the end of an edge. */
function arrow(points: Float32Array): string {
  const size = 4.5;
  const [x, y] = points.subarray(-2);
  return `M${place(x, y)}L${place(x - size * 0.7, y - size * 1.35)}L${place(x + size * 0.7, y - size * 1.35)}Z`;
}

function place(x: number, y: number): string {
  return `${round(x)},${round(y)}`;
}

export function round(value: number): number {
  return Math.round(value * 100) / 100;
}
