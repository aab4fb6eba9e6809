// The roofline: every fused subgraph by its arithmetic intensity and the FLOP/s it is predicted to reach, those that
// repetitions have alike as one point, under the roof of the chosen device. Without a device, under that of the generic
// ridge point.

import type { App } from "../app";
import type { Subgraph } from "../data/answers";
import { nodesIn } from "../data/tree";
import type { Theme } from "../draw/theme";
import * as format from "../format";
import { overlaps } from "../draw/camera";
import { measure } from "../draw/pen";
import type { Rect } from "../layout/spec";
import { ending } from "./parts";
import { type Frame, Plot } from "./plot";

/** So many points have their names, at most so many lines from them. */
const NAMES = 8;
const FAR = 8;

interface Dot {
  part: Subgraph;
  /** What all that are alike consist of, and how many they are. */
  nodes: number[];
  count: number;
  work: number;
  intensity: number;
  speed: number;
  seconds: number;
}

interface Roof {
  peak: number;
  bandwidth: number;
  label: string;
}

export class Roofline extends Plot {
  private dots: Dot[] = [];
  private asked = "";

  constructor(app: App) {
    super(app, "Roofline of the fused subgraphs", ["look", "select", "lit"]);
  }

  private roof(): Roof {
    const { device, costs } = this.app;
    if (device) return { ...device, label: `${device.name}, ${device.dtype}` };
    return { peak: costs.ridge, bandwidth: 1, label: "no device: relative to the bandwidth" };
  }

  private read(roof: Roof): void {
    const key = this.app.device?.id ?? "none";
    if (this.asked === key) return;
    this.asked = key;
    const { costs, device } = this.app;
    const dots = new Map<string, Dot>();
    for (const part of this.app.colours.fusion?.subgraphs ?? []) {
      const bytes = part.read + part.written;
      const work = part.nodes.reduce((sum, n) => sum + costs.node("flops", n) + costs.node("otherFlops", n), 0);
      if (!work || !bytes) continue;
      const seconds = device ? device.parts[part.part] / 1e6 : Math.max(work / roof.peak, bytes / roof.bandwidth);
      const key = `${part.part}.${this.app.tree.leaf[this.lead(part)].key}`;
      const known = dots.get(key) ?? { part, nodes: [], count: 0, work, intensity: work / bytes, speed: work / seconds, seconds: 0 };
      known.nodes.push(...part.nodes);
      dots.set(key, { ...known, count: known.count + 1, seconds: known.seconds + seconds });
    }
    this.dots = [...dots.values()].sort((a, b) => b.seconds - a.seconds);
  }

  private scales(
    frame: Frame, roof: Roof,
  ): { x: (v: number) => number; y: (v: number) => number; low: number; high: number; floor: number; top: number } {
    const ridge = roof.peak / roof.bandwidth;
    const all = this.dots.map((d) => d.intensity);
    const low = 10 ** Math.floor(Math.log10(Math.min(0.1, ...all.map((v) => v / 1.5))));
    const high = 10 ** Math.ceil(Math.log10(Math.max(ridge * 4, ...all)));
    const top = roof.peak * 4;
    const floor = Math.min(roof.bandwidth * low, ...this.dots.map((d) => d.speed)) / 4;
    const lx = Math.log10(high / low);
    const ly = Math.log10(top / floor);
    return {
      x: (v) => frame.left + (Math.log10(v / low) / lx) * frame.width,
      y: (v) => frame.top + frame.height - (Math.log10(v / floor) / ly) * frame.height,
      low, high, floor, top,
    };
  }

  protected paint(frame: Frame, theme: Theme): void {
    const roof = this.roof();
    this.read(roof);
    if (!this.dots.length) {
      this.text("This page has no fused subgraphs to draw.", frame.left + 8, frame.top + 20, theme.muted);
      return;
    }
    const { x, y, low, high, floor, top } = this.scales(frame, roof);
    const bottom = frame.top + frame.height;
    for (let v = low; v <= high * 1.001; v *= 10) {
      this.line(x(v), frame.top, x(v), bottom, theme.border, 0.6);
      const tick = v < 1 ? String(Number(v.toPrecision(2))) : format.integer(v);
      this.text(tick, Math.min(x(v), frame.left + frame.width + 16 - measure(tick, 11) / 2), bottom + 15, theme.faint, "center");
    }
    const decades = Math.log10(top / floor);
    const step = decades * 30 > frame.height ? 1000 : decades * 15 > frame.height ? 100 : 10;
    for (let v = 10 ** Math.ceil(Math.log10(floor)); v <= top; v *= step) {
      this.line(frame.left, y(v), frame.left + frame.width, y(v), theme.border, 0.6);
      this.text(
        this.app.device ? format.count(v, "FLOP/s") : Number(v.toPrecision(2)).toString(), frame.left - 8, y(v) + 4,
        theme.faint, "right",
      );
    }
    const ridge = roof.peak / roof.bandwidth;
    this.line(x(low), y(roof.bandwidth * low), x(ridge), y(roof.peak), theme.text, 1.6);
    this.line(x(ridge), y(roof.peak), x(high), y(roof.peak), theme.text, 1.6);
    this.line(x(ridge), y(roof.peak), x(ridge), bottom, theme.muted, 1, [3, 4]);
    const said = `ridge point ${ridge.toFixed(1)}`;
    const right = frame.left + frame.width;
    const foot = x(ridge) + 5 + measure(said, 11) < right ? x(ridge) + 5 : x(ridge) - 5 - measure(said, 11);
    this.text(said, foot, bottom - 6, theme.muted);
    const unit = "FLOPs per byte";
    this.text(unit, right, bottom + 28, theme.faint, "right");
    const [kind, point] = this.said();
    const under = [`${roof.label} · ${kind}: ${point}`, `${roof.label} · ${kind}`, kind]
      .find((text) => measure(text, 11) < frame.width - measure(unit, 11) - 12);
    this.text(under ?? "", frame.left, bottom + 28, theme.faint);
    // Names stand neither on the roof nor on the ridge point.
    const roofs = Array.from({ length: frame.width / 4 }, (_, i): Rect => {
      const v = low * (high / low) ** ((4 * i) / frame.width);
      return { x: frame.left + 4 * i, y: y(Math.min(roof.peak, v * roof.bandwidth)) - 2, w: 4, h: 4 };
    });
    const knee: Rect = { x: x(ridge) - 2, y: y(roof.peak), w: 4, h: bottom - y(roof.peak) };
    this.points(x, y, [...roofs, knee, { x: foot - 4, y: bottom - 18, w: measure(said, 11) + 8, h: 18 }], theme);
  }

  /** Whether it is fused, and what a point is. */
  private said(): [string, string] {
    const many = this.dots.some(({ part }) => part.nodes.length > 1);
    return many ? ["fused", "a point is a subgraph run as one kernel, or several alike"] : ["unfused", "a point is an operator"];
  }

  /** The names of the points that take longest, beside them or at the end of a line, where there is room. */
  private names(frame: Frame, x: (v: number) => number, y: (v: number) => number, taken: Rect[], theme: Theme): void {
    const longest = this.dots[0].seconds;
    const around = ({ intensity, speed }: Dot, r: number): Rect => ({ x: x(intensity) - r, y: y(speed) - r, w: 2 * r, h: 2 * r });
    taken.push(...this.dots.map((dot) => around(dot, this.radius(dot, longest))));
    const seen = new Set<string>();
    for (const dot of this.dots) {
      const item = this.app.tree.leaf[this.lead(dot.part)];
      const name = ending(item.path || !item.parent?.path ? item : item.parent);
      if (seen.size >= NAMES || seen.has(name)) continue;
      const [w, r, at, up] = [measure(name, 11), this.radius(dot, longest) + 4, x(dot.intensity), y(dot.speed)];
      const beside = [[r, 4], [-r - w, 4], [-w / 2, -r], [-w / 2, r + 9]];
      const steps = Array.from({ length: FAR }, (_, i) => i + 1);
      const far = steps.flatMap((k) => [1, -1].flatMap((side) => [r + 6 + 6 * k, -r - 6 - 6 * k - w].map((dx) => [dx, 4 + side * 11 * k])));
      const places = [...beside, ...far].map(([dx, dy]): Rect => ({ x: at + dx - 2, y: up + dy - 10, w: w + 4, h: 13 }));
      const free = places.findIndex(
        (p) => p.x > frame.left && p.x + p.w < frame.left + frame.width && p.y > 0 && p.y + p.h < frame.top + frame.height &&
          !taken.some((t) => overlaps(t, p)),
      );
      if (free < 0) continue;
      const { x: left, y: top } = places[free];
      seen.add(name);
      taken.push(places[free]);
      if (free >= beside.length) this.line(at, up, left > at ? left : left + w + 4, top + 6, theme.muted, 0.8);
      this.text(name, left + 2, top + 10, theme.text);
    }
  }

  private points(x: (v: number) => number, y: (v: number) => number, taken: Rect[], theme: Theme): void {
    const { ctx, app } = this;
    const longest = this.dots[0].seconds;
    const chosen = new Set(app.chosen && nodesIn(app.chosen));
    for (const dot of this.dots) {
      const bound = app.costs.boundOfPart(dot.part.part, dot.intensity, app.device);
      const kind = app.colours.mode === "bottleneck" && bound ? app.colours.marks.bounds[bound]
        : app.colours.kind(app.tree.leaf[this.lead(dot.part)]);
      const faded = app.lit && !dot.nodes.some((n) => app.lit?.[n]);
      ctx.globalAlpha = faded ? 0.12 : 0.6;
      ctx.fillStyle = theme.dark ? kind.dark : kind.light;
      ctx.beginPath();
      ctx.arc(x(dot.intensity), y(dot.speed), this.radius(dot, longest), 0, 7);
      ctx.fill();
      if (dot.nodes.some((n) => chosen.has(n))) {
        ctx.globalAlpha = 1;
        ctx.strokeStyle = theme.accent;
        ctx.lineWidth = 2;
        ctx.stroke();
      }
    }
    ctx.globalAlpha = 1;
    this.names(this.frame(), x, y, taken, theme);
    const near = this.pointer && this.near(this.pointer);
    if (!near || !this.pointer) return;
    const node = app.model.graph.nodes[this.lead(near.part)];
    this.note(
      [
        `${app.tree.leaf[this.lead(near.part)].path || node.name}${near.count > 1 ? ` and ${format.integer(near.count - 1)} alike` : ""}`,
        `${format.intensity(near.intensity)} FLOPs/byte · ${format.flops(near.work)}${near.count > 1 ? " each" : ""}`,
        app.device ? `${format.count(near.speed, "FLOP/s")} · ${format.seconds(near.seconds)}${near.count > 1 ? " in all" : ""}` : near.part.rule,
      ],
      this.pointer.x, this.pointer.y,
    );
  }

  private radius(dot: Dot, longest: number): number {
    return 2.5 + 7 * Math.sqrt(dot.seconds / longest);
  }

  /** The node that a subgraph is named after: the one that does most. */
  private lead(part: Subgraph): number {
    const { costs } = this.app;
    const work = (n: number): number => costs.node("flops", n) * 1e3 + costs.node("otherFlops", n);
    return part.nodes.reduce((a, b) => (work(b) > work(a) ? b : a));
  }

  /** The dot under a point; the smallest where they cover one another. */
  private near(at: { x: number; y: number }): Dot | null {
    const { x, y } = this.scales(this.frame(), this.roof());
    const longest = this.dots[0]?.seconds ?? 1;
    const hit = this.dots.filter(
      (d) => Math.hypot(x(d.intensity) - at.x, y(d.speed) - at.y) <= this.radius(d, longest) + 3
    );
    return hit[hit.length - 1] ?? null;
  }

  protected click(at: { x: number; y: number }): void {
    const { app } = this;
    const dot = this.near(at);
    if (!dot) return app.light("", null);
    app.light("subgraph", dot.nodes);
    void app.select(app.tree.leaf[this.lead(dot.part)], true);
  }
}
