// What the two charts share: a canvas that is redrawn when it must be, axes with round figures, and a note
// that follows the pointer.

import type { App, AppEvent } from "../app";
import type { Item } from "../data/tree";
import { measure } from "../draw/pen";
import { font, mix, type Theme } from "../draw/theme";
import { beside, div, fill, h, onFrame } from "./dom";

/** The height of a row of the ruler. */
export const RULE = 15;
/** Room for the figures of the upright axis. */
const LEFT = 84;

export interface Frame {
  left: number;
  top: number;
  width: number;
  height: number;
}

export abstract class Plot {
  readonly element: HTMLElement;
  protected canvas: HTMLCanvasElement;
  protected ctx: CanvasRenderingContext2D;
  protected tip: HTMLElement;
  protected pointer: { x: number; y: number } | null = null;
  readonly redraw: () => void;

  constructor(protected app: App, label: string, events: AppEvent[]) {
    this.canvas = h("canvas", { class: "plot", "aria-label": label, role: "img", tabindex: "0" });
    this.ctx = this.canvas.getContext("2d") as CanvasRenderingContext2D;
    this.tip = h("div", { class: "tip", hidden: true });
    this.element = div("plot-box", this.canvas, this.tip);
    this.redraw = onFrame(() => this.draw());
    app.on(this.redraw, ...events);
    new ResizeObserver(this.redraw).observe(this.element);
    this.canvas.addEventListener("pointermove", (event) => {
      this.pointer = this.point(event);
      this.redraw();
    });
    this.canvas.addEventListener("pointerleave", () => {
      this.pointer = null;
      this.redraw();
    });
    this.canvas.addEventListener("click", (event) => this.click(this.point(event)));
  }

  protected abstract paint(frame: Frame, theme: Theme): void;
  protected abstract click(at: { x: number; y: number }): void;

  protected frame(): Frame {
    const { clientWidth, clientHeight } = this.element;
    return {
      left: LEFT, top: 14, width: Math.max(10, clientWidth - LEFT - 18), height: Math.max(10, clientHeight - 14 - 30),
    };
  }

  private draw(): void {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!width || !height) return;
    const scale = globalThis.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * scale) || this.canvas.height !== Math.round(height * scale)) {
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round(height * scale);
    }
    this.ctx.setTransform(scale, 0, 0, scale, 0, 0);
    this.ctx.clearRect(0, 0, width, height);
    this.tip.hidden = true;
    this.paint(this.frame(), this.app.theme);
  }

  protected text(
    text: string, x: number, y: number, colour: string, align: CanvasTextAlign = "left", weight = 400,
    rim = this.app.theme.card,
  ): void {
    const { ctx } = this;
    ctx.font = font(11, weight);
    ctx.fillStyle = colour;
    ctx.textAlign = align;
    // A rim in the colour of the ground keeps letters apart from the lines behind them.
    ctx.strokeStyle = rim;
    ctx.lineWidth = 3;
    ctx.lineJoin = "round";
    if (rim) ctx.strokeText(text, x, y);
    ctx.fillText(text, x, y);
  }

  protected line(x0: number, y0: number, x1: number, y1: number, colour: string, width = 1, dash: number[] = []): void {
    const { ctx } = this;
    ctx.strokeStyle = colour;
    ctx.lineWidth = width;
    ctx.setLineDash(dash);
    ctx.beginPath();
    ctx.moveTo(x0, y0);
    ctx.lineTo(x1, y1);
    ctx.stroke();
    ctx.setLineDash([]);
  }

  /** Which modules run when: what the model consists of, and beneath it what that does; `x` is where a node begins. */
  protected ruler(x: (node: number) => number, top: number, theme: Theme): void {
    const { ctx, app: { tree, colours } } = this;
    let whole = tree.root;
    const width = (item: Item): number => x(item.last + 1) - x(item.first);
    for (let only: Item | undefined = whole; only; only = whole.children.find((c) => width(c) > 0.9 * width(whole))) whole = only;
    const upper = (whole.kind === "fold" && whole.parent ? whole.parent : whole).children;
    [upper, upper.flatMap((item) => (item.children.length ? item.children : item))].forEach((row, i) => {
      const y = top + i * (RULE + 1);
      for (const item of row) {
        if (width(item) < 1) continue;
        ctx.fillStyle = mix(theme.card, colours.look(item).colour, 0.3);
        ctx.fillRect(x(item.first), y, Math.max(0.6, width(item) - 1), RULE);
        const name = [item.label, item.label.split(".").pop() ?? ""].find((n) => measure(n, 11) < width(item) - 6);
        if (name) this.text(name, x(item.first) + 3, y + RULE - 4, theme.text, "left", 400, "");
      }
    });
  }

  protected note(lines: string[], x: number, y: number): void {
    const [first, ...rest] = lines;
    fill(this.tip, h("b", null, first), ...rest.map((line) => h("div", null, line)));
    this.tip.hidden = false;
    beside(this.tip, x, y - 10, this.element.clientWidth, this.element.clientHeight);
  }

  private point(event: MouseEvent): { x: number; y: number } {
    const rect = this.canvas.getBoundingClientRect();
    return { x: event.clientX - rect.left, y: event.clientY - rect.top };
  }
}

/** Round figures from 0 to `most`, about `count` of them; binary ones for bytes. */
export function ticks(most: number, count: number, binary: boolean): number[] {
  if (!(most > 0)) return [0];
  const base = binary ? 2 ** Math.floor(Math.log2(most / count)) : 10 ** Math.floor(Math.log10(most / count));
  const step = [1, 2, 4, 5, 8, 10].filter((m) => !binary || m !== 5).map((m) => m * base)
    .find((s) => most / s <= count) ?? base * 10;
  const found: number[] = [];
  for (let at = 0; at <= most * 1.0001; at += step) found.push(at);
  return found;
}
