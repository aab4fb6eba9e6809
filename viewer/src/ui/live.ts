// Live memory over the run. A click asks which tensors are alive at that moment, and lights them.

import type { App } from "../app";
import type { Theme } from "../draw/theme";
import * as format from "../format";
import { div, fill, h, onKey, p, press, span } from "./dom";
import { link } from "./parts";
import { type Frame, Plot, RULE, ticks } from "./plot";

export class LiveMemory extends Plot {
  constructor(app: App) {
    super(app, "Live memory over the run", ["look", "select", "lit"]);
    this.canvas.addEventListener("keydown", (event) => {
      const { memory, moment } = app;
      onKey(event, {
        ArrowRight: () => app.setMoment(Math.min(memory.kernels - 1, (moment ?? -1) + 1)),
        ArrowLeft: () => app.setMoment(Math.max(0, (moment ?? memory.kernels) - 1)),
        Enter: () => app.setMoment(memory.peakAt),
      });
    });
  }

  /** Above the names of the axis is room for the ruler. */
  protected frame(): Frame {
    const frame = super.frame();
    return { ...frame, height: Math.max(10, frame.height - 2 * RULE - 4) };
  }

  protected paint(frame: Frame, theme: Theme): void {
    const { ctx, app } = this;
    const { memory } = app;
    const { left, top, width, height } = frame;
    const bottom = top + height;
    const measured = app.page.measured?.memory ?? [];
    const most = measured.reduce((top, [, bytes]) => Math.max(top, bytes), memory.peak) * 1.06 || 1;
    const x = (k: number): number => left + (k / Math.max(memory.kernels, 1)) * width;
    const y = (bytes: number): number => bottom - (bytes / most) * height;
    for (const tick of ticks(most, Math.max(2, height / 36), true)) {
      this.line(left, y(tick), left + width, y(tick), theme.border, 0.6);
      this.text(format.size(tick), left - 8, y(tick) + 4, theme.faint, "right");
    }
    if (app.chosen) {
      const [from, to] = [app.chosen.first, app.chosen.last + 1].map((node) => x(memory.starts[node]));
      ctx.fillStyle = theme.accent;
      ctx.globalAlpha = 0.14;
      ctx.fillRect(from, top, Math.max(1.5, to - from), height);
      ctx.globalAlpha = 1;
    }
    this.area(frame, y, theme);
    measured.forEach(([id, bytes], i) => {
      const [next, after] = measured[i + 1] ?? [memory.starts.length, bytes];
      const to = x(memory.starts[next - 1]);
      this.line(x(memory.starts[id - 1]), y(bytes), to, y(bytes), theme.text, 1.4, [4, 2]);
      this.line(to, y(bytes), to, y(after), theme.text, 1.4, [4, 2]);
    });
    if (memory.kernels) this.ruler((node) => x(memory.starts[node]), bottom + 3, theme);
    const peak = x(memory.peakAt + 0.5);
    if (memory.kernels) {
      ctx.fillStyle = theme.error;
      ctx.beginPath();
      ctx.arc(peak, y(memory.peak), 3.5, 0, 7);
      ctx.fill();
      const right = peak > left + width * 0.7;
      this.text(
        `peak ${format.size(memory.peak)}`, peak + (right ? -9 : 9), y(memory.peak) + 4, theme.text,
        right ? "right" : "left", 600,
      );
    } else this.text("This profile has no record of memory.", left + 8, top + 20, theme.muted);
    if (app.moment !== null) this.line(x(app.moment + 0.5), top, x(app.moment + 0.5), bottom, theme.accent, 1.5);
    const below = bottom + 2 * RULE + 20;
    this.text(`kernels, 1 to ${format.integer(memory.kernels)}`, left + width, below, theme.faint, "right");
    this.text(`live activations${measured.length ? "; measured with dashes" : ""}`, left, below, theme.faint);
    if (this.pointer && memory.kernels) {
      const k = this.kernel(this.pointer.x);
      const node = memory.node(k);
      this.line(x(k + 0.5), top, x(k + 0.5), bottom, theme.muted, 1, [3, 3]);
      this.note(
        [
          `${format.size(memory.live[k])} live`,
          `kernel ${format.integer(k + 1)}, node ${app.model.graph.nodes[node].id}`,
          app.tree.leaf[node].path || app.model.graph.nodes[node].name,
        ],
        x(k + 0.5), y(memory.live[k]),
      );
    }
  }

  /** The steps; where several kernels share a pixel, the largest of them. */
  private area(frame: Frame, y: (bytes: number) => number, theme: Theme): void {
    const { ctx } = this;
    const { live, kernels } = this.app.memory;
    const { left, top, width, height } = frame;
    if (!kernels) return;
    ctx.beginPath();
    ctx.moveTo(left, top + height);
    const steps = Math.min(kernels, Math.ceil(width * 2));
    for (let i = 0; i < steps; i++) {
      const from = Math.floor((i * kernels) / steps);
      const to = Math.max(from + 1, Math.floor(((i + 1) * kernels) / steps));
      let most = 0;
      for (let k = from; k < to; k++) most = Math.max(most, live[k]);
      ctx.lineTo(left + (i / steps) * width, y(most));
      ctx.lineTo(left + ((i + 1) / steps) * width, y(most));
    }
    ctx.lineTo(left + width, top + height);
    ctx.closePath();
    ctx.fillStyle = theme.accent;
    ctx.globalAlpha = 0.16;
    ctx.fill();
    ctx.globalAlpha = 0.9;
    ctx.strokeStyle = theme.accent;
    ctx.lineWidth = 1.2;
    ctx.stroke();
    ctx.globalAlpha = 1;
  }

  private kernel(x: number): number {
    const { left, width } = this.frame();
    const { kernels } = this.app.memory;
    return Math.max(0, Math.min(kernels - 1, Math.floor(((x - left) / width) * kernels)));
  }

  protected click(at: { x: number; y: number }): void {
    const { app } = this;
    const { left, width } = this.frame();
    const peak = left + ((app.memory.peakAt + 0.5) / Math.max(app.memory.kernels, 1)) * width;
    app.setMoment(Math.abs(at.x - peak) < 12 ? app.memory.peakAt : this.kernel(at.x));
  }
}

/** What is alive at the chosen moment, largest first. */
export function alive(app: App): HTMLElement {
  const element = div("alive");
  const paint = (): void => {
    const { moment, memory } = app;
    const peak = press("Go to the peak", () => app.setMoment(memory.peakAt));
    if (moment === null) {
      fill(
        element, p("note", "Click into the chart to see which tensors are alive at that moment."), div("choices", peak),
      );
      return;
    }
    const all = memory.at(moment);
    const entries = all.slice(0, 100).map(({ bytes, node }) =>
      node < 0
        ? h("li", null, span("link", span("value", "from outside"), span("note", format.size(bytes))))
        : h("li", null, link(app, app.tree.leaf[node], app.model.graph.nodes[node].name, format.size(bytes))),
    );
    fill(
      element,
      h(
        "p", null, h("b", null, `${format.size(memory.live[moment])} in ${format.plural(all.length, "tensor")}`),
        span("note", ` alive at kernel ${format.integer(moment + 1)}${moment === memory.peakAt ? ", the peak" : ""}`),
      ),
      moment === memory.peakAt ? null : div("choices", peak), h("ul", { class: "links" }, ...entries),
    );
  };
  app.on(paint, "lit", "look");
  return element;
}
