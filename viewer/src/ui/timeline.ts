// What runs when: the predicted queues of the host and of the device, each from the beginning of the run, those of what
// ranks exchange with what kernels wait for, and beneath them on the same scale one step as it was measured.

import type { App } from "../app";
import { running } from "../data/costs";
import { clean, type DeviceJson } from "../data/document";
import { fit, measure } from "../draw/pen";
import { ink, mix, type Theme } from "../draw/theme";
import * as format from "../format";
import { ending } from "./parts";
import { type Frame, Plot, RULE, ticks } from "./plot";

/** When something ran, in seconds: for which node (-1 where that is not known), and what. */
interface Slice {
  from: number;
  to: number;
  node: number;
  name: string;
  /** Whether nothing runs, since kernels wait for a collective (1) or for another stage (2). */
  wait?: 0 | 1 | 2;
}

const WAITS = ["", "exposed", "bubble"];

interface Lane {
  name: string;
  note: string;
  slices: Slice[];
  /** Where each node begins, if one runs after the other. */
  starts?: Float64Array;
}

/** Heights of the line above a lane, and of a lane without and with the modules beneath it. */
const LINE = 14;
const LOW = 40;
const HIGH = 36 + 2 * RULE;

export class Timeline extends Plot {
  private lanes: Lane[] = [];
  private of: unknown = this;

  constructor(app: App) {
    super(app, "What runs when: as predicted, and as measured", ["look", "select", "lit"]);
  }

  private read(): void {
    const { device, sizes, page: { measured, queues, device: costed }, costs, model: { graph } } = this.app;
    const of = sizes ? null : device;
    if (this.of === of) return;
    this.of = of;
    this.lanes = [];
    const apart = of && (of as DeviceJson).id === costed ? queues : undefined;
    for (const queue of of ? (["host", "device"] as const) : []) {
      if (apart && queue === "device") continue;
      const starts = running(graph.nodes.length, (node) => costs.queued(of as DeviceJson, queue, node));
      const slices = graph.nodes.map((_, node): Slice => ({ from: starts[node], to: starts[node + 1], node, name: "" }));
      const total = starts[slices.length];
      const note = `predicted ${format.seconds(total)}${(of?.limit ? "host" : "device") === queue ? ", the limit" : ""}`;
      if (total) this.lanes.push({ name: queue, note, slices: slices.filter(({ from, to }) => to > from), starts });
    }
    const add = (name: string, said: string, slices: Slice[]): void => {
      const busy = slices.reduce((sum, { from, to }) => sum + to - from, 0);
      this.lanes.push({ name: clean(name), note: `${said} ${format.seconds(busy)}`, slices });
    };
    const slice = (from: number, length: number, node: number, name: string, wait?: Slice["wait"]): Slice =>
      ({ from: from / 1e6, to: (from + length) / 1e6, node: node - 1, name, wait });
    for (const [name, rows] of Object.entries(apart ?? {})) {
      add(name, "predicted", rows.map(([from, length, node, wait]) => slice(from, length, node, WAITS[wait], wait)));
    }
    for (const [name, rows] of Object.entries(measured?.lanes ?? {})) {
      add(name, "measured", rows.map(([from, length, node, text]) => slice(from, length, node, clean(measured?.names[text]))));
    }
  }

  private get end(): number {
    return Math.max(...this.lanes.map(({ slices }) => slices.reduce((most, { to }) => Math.max(most, to), 0)));
  }

  /** The upper rim of each lane, and the lower one of the last; modules are left out where there is no room for them. */
  private rims({ top, height }: Frame): number[] {
    const tall = this.lanes.map(({ starts }) => (starts ? HIGH : LOW));
    const heights = tall.reduce((a, b) => a + b) > height ? this.lanes.map(() => Math.min(LOW, height / tall.length)) : tall;
    return heights.reduce((rims, high) => [...rims, rims[rims.length - 1] + high], [top]);
  }

  protected paint(frame: Frame, theme: Theme): void {
    this.read();
    const { left, top, width } = frame;
    if (!this.lanes.length) {
      this.text("Choose a device, and the predicted time of its queues is drawn here.", left, top + 20, theme.muted);
      return;
    }
    const [end, rims] = [this.end, this.rims(frame)];
    const bottom = rims[this.lanes.length];
    for (const tick of ticks(end, Math.max(2, width / 130), false)) {
      const x = left + (tick / end) * width;
      this.line(x, top, x, bottom, theme.border, 0.6);
      this.text(format.seconds(tick), x, bottom + 15, theme.faint, "center");
    }
    this.lanes.forEach((lane, i) => this.lane(lane, rims[i], rims[i + 1] - rims[i], frame, end, theme));
    const under = this.pointer && this.at(this.pointer);
    if (!under || !this.pointer) return;
    const leaf = this.app.tree.leaf[under.slice.node];
    this.note([
      leaf ? leaf.path || leaf.label : "of no node", under.slice.name, `${under.lane.name}, ${under.lane.note.split(" ")[0]}`,
      `${format.seconds(under.slice.to - under.slice.from)}, from ${format.seconds(under.slice.from)}`,
    ].filter(Boolean), this.pointer.x, this.pointer.y);
  }

  /** Names of streams of several ranks are long. */
  protected override frame(): Frame {
    const frame = super.frame();
    const more = this.lanes.some(({ name }) => name.length > 12) ? 24 : 0;
    return { ...frame, left: frame.left + more, width: frame.width - more };
  }

  private lane(lane: Lane, top: number, height: number, { left, width }: Frame, end: number, theme: Theme): void {
    const { ctx, app: { tree, colours, lit, chosen } } = this;
    const { starts } = lane;
    const ruled = starts && height >= HIGH;
    const high = (ruled ? height - 2 * RULE - 4 : height - 2) - LINE - 2;
    const y = top + LINE;
    if (ruled) this.ruler((node) => left + (starts[node] / end) * width, y + high + 1, theme);
    this.text(lane.name, left - 8, y + 4 + high / 2, theme.text, "right");
    this.text(lane.note, left, top + 10, theme.muted);
    let drawn = 0;
    for (const { from, to, node, name, wait } of lane.slices) {
      const x = left + (from / end) * width;
      const wide = (to / end) * width + left - x;
      // Of many that share a pixel the first is drawn.
      if (x + wide < drawn) continue;
      drawn = x + Math.max(wide, 0.7);
      const leaf = tree.leaf[node];
      const colour = wait ? [theme.none, theme.error, theme.out][wait] : leaf ? mix(theme.card, colours.look(leaf).colour, 0.75) : theme.none;
      ctx.globalAlpha = lit && !lit[node] ? 0.25 : 1;
      ctx.fillStyle = colour;
      ctx.fillRect(x, y, Math.max(0.7, wide - (wide > 3 ? 0.7 : 0)), high);
      if (chosen && node >= chosen.first && node <= chosen.last) {
        ctx.fillStyle = theme.accent;
        ctx.fillRect(x, y + high - 3, Math.max(1, wide), 3);
      }
      const said = wait ? `${name}: ${leaf ? ending(leaf) : ""}` : leaf ? ending(leaf) : name;
      if (wide > 30 && measure(said, 11) < wide * 2) {
        this.text(fit(said, 11, 400, wide - 8), x + 4, y + 4 + high / 2, ink(colour).text, "left", 400, "");
      }
      ctx.globalAlpha = 1;
    }
  }

  /** What ran in the lane and at the time under a point. */
  private at(point: { x: number; y: number }): { lane: Lane; slice: Slice } | null {
    const frame = this.frame();
    const lane = this.lanes[this.rims(frame).findIndex((rim) => point.y < rim) - 1];
    const time = ((point.x - frame.left) / frame.width) * this.end;
    const near = (this.end / frame.width) * 1.5;
    const slice = lane?.slices.find(({ from, to }) => time >= from && time < Math.max(to, from + near));
    return slice ? { lane, slice } : null;
  }

  protected click(point: { x: number; y: number }): void {
    const { app } = this;
    const leaf = app.tree.leaf[this.at(point)?.slice.node ?? -1];
    if (leaf) void app.select(leaf, true);
  }
}
