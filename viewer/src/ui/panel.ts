// What is known about the chosen item, with the figures that views in the terminal give, too; and where nothing is chosen
// about the model: its totals, how it was traced, and what is not known.

import type { App } from "../app";
import { nodesOf } from "../data/costliest";
import type { Bound, Measure } from "../data/costs";
import type { Compared, Difference } from "../data/answers";
import { clean } from "../data/document";
import type { Kernel, Parameter, Value } from "../data/graph";
import { type Item, nodesIn } from "../data/tree";
import * as format from "../format";
import { button, copyText, div, fill, h, ICONS, p, press, span } from "./dom";
import { entry, figure, link, list, listed, rows, said, section, shareText } from "./parts";

export function panel(app: App): HTMLElement {
  const element = h("section", { class: "panel", "aria-label": "Details" });
  const paint = (): void => {
    fill(element, ...(app.chosen ? details(app, app.chosen) : summary(app)));
    element.scrollTop = 0;
  };
  app.on(paint, "select", "look");
  return element;
}

function details(app: App, item: Item): HTMLElement[] {
  const node = item.node >= 0 ? app.model.graph.nodes[item.node] : null;
  const title = node ? (item.path ? item.label : node.op) : item.label;
  const head = h(
    "header", { class: "panel-head" }, div("panel-kind", kindOf(app, item)), h("h2", null, title),
    item.cls && item.cls !== title ? div("panel-class", item.cls) : null,
    div(
      "panel-tools",
      button("Bring into sight (G)", ICONS.fit, () => void app.select(item, true).then(() => app.bring(item, true))),
      button("Light it", ICONS.sun, () => app.light("item", nodesIn(item))),
      button("Back to the model", ICONS.cross, () => void app.select(null)),
    ),
  );
  const error = node?.error ? p("alert", node.error) : null;
  const parts: (HTMLElement | null)[] = [head, error, crumbs(app, item), costs(app, item)];
  if (node) {
    parts.push(
      rows("Call", [
        ["name", node.name],
        ["operator", node.op],
        ["called as", node.target],
        ["arguments", node.arguments || null],
        ["source", node.source || null],
        ["fragment", app.model.graph.breaks.length ? String(node.fragment + 1) : null],
        ["phase", node.phase !== "forward" ? node.phase : null],
      ]),
      values(
        app, "Inputs",
        node.inputs.map((v) => app.model.graph.values[v]).filter((v) => v.kind !== "parameter" && v.kind !== "buffer"),
        true,
      ),
      values(app, "Outputs", node.outputs.map((v) => app.model.graph.values[v]), false), fused(app, item.node),
      neighbours(app, "Made by", app.model.graph.sources[item.node]),
      neighbours(app, "Read by", app.model.graph.users(item.node)),
    );
  } else parts.push(members(app, item), boundary(app, item));
  parts.push(parameters(app.costs.parameters(item)), kernels(app, item));
  return parts.filter((p) => p !== null);
}

function kindOf({ model, difference }: App, item: Item): string {
  const node = model.graph.nodes[item.node];
  const numbers = model.graph.numbers(item.first, item.last);
  if (node?.removed) return `removed: node ${node.id} of ${difference?.name ?? "the other"}`;
  if (node) return node.kind === "call" ? numbers : `${node.kind}, ${numbers}`;
  if (item.kind === "fold") return `${item.count} repeats, ${numbers}`;
  return `${item.kind}, ${numbers}`;
}

/** The modules around an item, each a way up. */
function crumbs(app: App, item: Item): HTMLElement | null {
  const path: HTMLElement[] = [];
  for (let at = item.parent; at; at = at.parent) {
    const up = at;
    const name = at.kind === "root" ? at.cls || app.model.name : at.label;
    path.unshift(press(name, () => void app.select(up, true), { class: "crumb" }));
  }
  return path.length ? h("nav", { class: "crumbs", "aria-label": "Modules around it" }, ...path) : null;
}

function costs(app: App, item: Item): HTMLElement {
  const { costs: c, colours } = app;
  const flops = c.item("flops", item);
  const other = c.item("otherFlops", item);
  const intensity = c.intensity(item);
  const unknown = c.item("unknown", item);
  const share = (measure: Measure): string => shareText(measure, c.share(measure, item));
  const bound = c.bound(item);
  const before = (measure: Compared, write: (value: number) => string): string | null => {
    const was = app.difference?.was(measure, item);
    if (was === undefined) return null;
    if (app.model.graph.ids(item.first, item.last) === null) return write(was);
    const by = app.difference?.more(measure, item);
    return by ? `${write(was)}, now ${by > 0 ? "+" : "−"}${write(Math.abs(by))}` : "the same";
  };
  return rows("Cost", [
    ["FLOPs", flops || other ? share("flops") : "none"],
    ["before", before("flops", format.flops)],
    ["MACs", flops ? format.macs(flops / 2) : null],
    ["other FLOPs", other ? format.flops(other) : null],
    ["bytes moved", share("bytes")],
    ["before", before("bytes", format.size)],
    ["memory made", c.item("memory", item) ? format.size(c.item("memory", item)) : null],
    ["intensity", `${format.intensity(intensity)} FLOPs/byte`],
    [
      "bound by",
      bound ? `${colours.marks.bounds[bound].label} (ridge point ${app.ridgeText})` : "nothing: no data is moved",
    ],
    ["measured time", c.item("measured", item) ? share("measured") : null],
    ["predicted time", c.item("time", item) ? share("time") : null],
    ["launched in", c.item("host", item) ? share("host") : null],
    ["before", c.total("time") ? before("time", format.seconds) : null],
    ["unknown costs", unknown ? span("warn", format.plural(unknown, "kernel")) : null],
  ]);
}

/** The fused subgraph of a node, and why its nodes go together. */
function fused(app: App, node: number): HTMLElement | null {
  const part = app.colours.fusion?.at(node);
  if (!part) return null;
  const { nodes } = app.model.graph;
  const alone = part.nodes.length < 2;
  const moved = part.nodes.reduce((sum, n) => sum + app.costs.node("bytes", n), 0);
  return section(
    `Fused subgraph ${part.index + 1}`, p("text", part.reason),
    moved && !alone
      ? p("note", `moves ${format.size(part.read + part.written)} as one kernel, ${format.size(moved)} one by one`)
      : null,
    alone
      ? null
      : div("choices", press("Light them", () => app.light("subgraph", part.nodes))),
    alone ? null : list(part.nodes.map((n) => link(app, app.tree.leaf[n], nodes[n].name, nodes[n].op))),
  );
}

function members(app: App, item: Item): HTMLElement | null {
  if (item.kind !== "fold") return null;
  const box = app.box(item);
  const all = app.view.apart.has(box?.key.id ?? -1);
  const open = box?.layout;
  const step = (name: string, by: number): HTMLElement =>
    press(name, () => box && void app.stepMember(box, by).then(() => app.emit("select")));
  const tools = item.children[0].node >= 0 ? null : div(
    "choices",
    press(all ? "Show one for all" : `Show all ${item.children.length}`, () => box && void app.unfold(box, !all)),
    open && !all ? step("Previous", -1) : null, open && !all ? step("Next", 1) : null,
  );
  return section("Repeats", tools, list(item.children.slice(0, 200).map((m) => link(app, m, m.label, figure(app, m)))));
}

/** What goes in and out of a module, by shape. */
function boundary(app: App, item: Item): HTMLElement | null {
  const { graph } = app.model;
  const into = new Set<Value>();
  const out = new Set<Value>();
  const gone = graph.ids(item.first, item.last) === null;
  for (let i = item.first; i <= item.last; i++) {
    if (graph.nodes[i].removed !== gone) continue;
    for (const v of graph.nodes[i].inputs) {
      const value = graph.values[v];
      if (value.producer < item.first && value.kind !== "parameter" && value.kind !== "buffer") into.add(value);
    }
    for (const v of graph.nodes[i].outputs) {
      if (graph.values[v].users.some((u) => u > item.last)) out.add(graph.values[v]);
    }
  }
  const holder = h("div", null, values(app, "Inputs", [...into], true), values(app, "Outputs", [...out], false));
  return into.size + out.size ? holder : null;
}

function values(app: App, title: string, all: Value[], made: boolean): HTMLElement | null {
  return listed(title, all, 60, (v) => {
    const to = made ? v.producer : v.users[0];
    const text = ` ${v.dtype} · ${format.size(v.bytes)}${v.name ? ` · ${v.name}` : ""}`;
    const what = [h("b", null, format.shape(v.shape)), text];
    if (to === undefined || to < 0) return span("value", ...what);
    const note = `${made ? "from" : "to"} ${app.model.graph.nodes[to].name}`;
    return entry(what, note, () => void app.select(app.tree.leaf[to], true));
  });
}

function neighbours(app: App, title: string, all: number[]): HTMLElement | null {
  const { nodes } = app.model.graph;
  return listed(title, all, 60, (n) => link(app, app.tree.leaf[n], nodes[n].name, nodes[n].op));
}

function parameters(all: Parameter[]): HTMLElement | null {
  const count = all.reduce((sum, p) => sum + (p.kind === "parameter" ? p.numel : 0), 0);
  const bytes = all.reduce((sum, p) => sum + p.bytes, 0);
  return listed(`Parameters · ${format.count(count)} · ${format.size(bytes)}`, all, 40, (p) => said(
    p.name, `${format.shape(p.shape)} ${p.dtype} · ${format.size(p.bytes)}`, p.kind === "buffer" ? " · buffer" : "",
    p.tied.length ? ` · tied to ${p.tied.join(", ")}` : "",
  ));
}

function kernels(app: App, item: Item): HTMLElement | null {
  const { graph } = app.model;
  const byOp = new Map<string, { kernel: Kernel; times: number; flops: number; bytes: number }>();
  for (let i = item.first; i <= item.last; i++) {
    for (const k of graph.nodes[i].kernels) {
      const kernel = graph.kernels[k];
      const entry = byOp.get(kernel.op) ?? { kernel, times: 0, flops: 0, bytes: 0 };
      entry.times++;
      entry.flops += kernel.flops + kernel.other_flops;
      entry.bytes += kernel.read + kernel.written;
      byOp.set(kernel.op, entry);
    }
  }
  const all = [...byOp.values()].sort((a, b) => b.flops - a.flops || b.bytes - a.bytes);
  const title = `Kernels · ${format.integer(app.costs.item("kernels", item))}`;
  return listed(title, all, 40, ({ kernel, times, flops, bytes }) => said(
    [kernel.op, times > 1 ? ` × ${format.integer(times)}` : ""],
    kernel.cost === "unknown" ? span("warn", "cost unknown") : kernel.cost === "zero" ? "no work: a view"
      : `${format.flops(flops)} · ${format.size(bytes)} · ${kernel.category} ${kernel.dtype}`,
  ));
}

export function summary(app: App): HTMLElement[] {
  const { model, costs } = app;
  const { graph } = model;
  const unknown = costs.total("unknown");
  const kernels = costs.total("kernels");
  const bytes = graph.parameters.reduce((sum, p) => sum + (p.kind === "parameter" ? p.bytes : 0), 0);
  const work = costs.total("flops") + costs.total("otherFlops");
  const failed = graph.nodes.filter((n) => n.error);
  const parts: (HTMLElement | null)[] = [
    h(
      "header", { class: "panel-head" }, div("panel-kind", "model"), h("h2", null, model.name),
      div("panel-class", model.cls),
    ),
    ...failed.map((n) => {
      const what = `The forward stopped at node ${n.id}, ${n.name}: ${n.error}`;
      return press(what, () => void app.select(app.tree.leaf[n.index], true), { class: "alert" });
    }),
    app.difference ? differences(app, app.difference) : null,
    bounds(app),
    hotspots(app),
    rows("Totals", [
      ["parameters", `${format.count(costs.parameterCount(app.tree.root))} · ${format.size(bytes)}`],
      ["FLOPs", format.flops(costs.total("flops"))],
      ["MACs", format.macs(costs.total("flops") / 2)],
      ["other FLOPs", format.flops(costs.total("otherFlops"))],
      ["bytes moved", format.size(costs.total("bytes"))],
      ["intensity", `${format.intensity(costs.total("bytes") ? work / costs.total("bytes") : null)} FLOPs/byte`],
      ["peak of live memory", format.size(app.memory.peak)],
      ["nodes", format.integer(graph.own)],
      ["kernels", format.integer(kernels)],
      [
        "cost coverage",
        unknown
          ? span("warn", `${format.percent(1 - unknown / kernels)}: ${format.plural(unknown, "kernel")} unknown`)
          : "100 %",
      ],
      ["mode", model.mode],
      ["target", model.target],
    ]),
    unknown ? unknowns(app) : null,
    graph.breaks.length ? breaks(app) : null,
    next(app),
    rows("Traced", [
      ...model.attempts.map(
        (a): [string, string] => [
          a.tracer, `${a.tensors} tensors, ${format.seconds(a.seconds)}${a.error ? `: ${a.error}` : ""}`,
        ]
      ),
      ...model.convention.map(([k, v]): [string, string] => [k, v]),
      ...model.versions.map(([k, v]): [string, string] => [k, v]),
    ]),
    model.notes.length ? section("Notes", ...model.notes.map((n) => p("text", n))) : null,
  ];
  return parts.filter((p) => p !== null);
}

/** What the model waits for: on a device by predicted time, without one by bytes moved. */
function bounds({ colours, costs, device, page: { measured }, ridgeText }: App): HTMLElement {
  const timed = costs.total("time") > 0;
  const measure = timed ? "time" : "bytes";
  const shares = costs.byBound(measure);
  const waits: Bound[] = ["exposed", "bubble"];
  const kinds: Bound[] = ["compute", timed ? "launch" : "balanced", "memory", ...waits.filter((b) => shares.get(b))];
  return rows(device ? `On ${device.name}` : "Bottlenecks", [
    ["measured time", measured ? `${format.seconds(measured.seconds)} on ${clean(measured.on)}` : null],
    ["predicted time", timed && device ? format.seconds(device.seconds) : null],
    ["the device works", timed && device?.limit ? format.seconds(costs.total("time")) : null],
    ["needs", device ? fits(device.memory) : null],
    ["ridge point", device ? `${ridgeText} at ${device.dtype}` : ridgeText],
    ...kinds.map((bound): [string, string] => [
      colours.marks.bounds[bound].label, `${format.percent(shares.get(bound) ?? 0)} of ${timed ? costs.timeOf : measure}`,
    ]),
  ]);
}

function fits([needed, capacity]: [number, number]): string {
  return needed <= capacity
    ? `${format.size(needed)} of ${format.size(capacity)}: fits`
    : `${format.size(needed)}, and has ${format.size(capacity)}: does not fit`;
}

/** Commands that answer what the page does not; a click copies one. */
function next(app: App): HTMLElement | null {
  if (!app.next.length) return null;
  return section("Next", list(app.next.map(([what, command]) =>
    entry(what, h("code", null, command), () => void copyText(command)),
  )), p("note", "A click copies the command."));
}

/** What differs from the other profile, in figures, and what is gone. */
function differences(app: App, { name, totals }: Difference): HTMLElement {
  const { costs, model, tree } = app;
  const line = (was: number, is: number, write: (value: number) => string): string => {
    const by = was ? ` (${is > was ? "+" : "−"}${format.percent(Math.abs(is / was - 1))})` : "";
    return was === is ? `${write(is)}, the same` : `${write(was)} → ${write(is)}${by}`;
  };
  const gone = model.graph.nodes.filter((n) => n.removed);
  const figures = rows(`Against ${name}`, [
    ["parameters", line(totals.parameters, costs.parameterCount(tree.root), format.count)],
    ["FLOPs", line(totals.flops, costs.total("flops"), format.flops)],
    ["bytes moved", line(totals.bytes, costs.total("bytes"), format.size)],
    ["nodes", `${format.integer(totals.nodes)} → ${format.integer(model.graph.own)}`],
    ["removed", gone.length ? format.plural(gone.length, "node") : null],
  ]);
  if (gone.length) {
    figures.append(list(gone.slice(0, 60).map((n) => link(app, tree.leaf[n.index], `− ${n.name}`, n.op))));
  }
  return figures;
}

function hotspots(app: App): HTMLElement | null {
  const measure = app.metric;
  const all = app.hotspots().map((spot) => {
    const shares = spot.leaves.map((leaf) => app.costs.share(measure, leaf));
    const total = shares.reduce((sum, s) => sum + s.total, 0);
    const { times } = shares[0];
    const text = shareText(measure, { each: total / times, times, total, share: spot.share });
    return link(app, spot.item, spot.path || app.model.name, text);
  });
  const tools = div(
    "choices", press("Light them", () => app.light("hotspots", app.hotspots().flatMap(nodesOf))),
    press("Light the costliest path", () => app.lightPath()),
  );
  return all.length ? section("Hot spots", tools, list(all)) : null;
}

function unknowns(app: App): HTMLElement {
  const { graph } = app.model;
  const found = new Map<string, number[]>();
  graph.nodes.forEach((node, i) => {
    for (const k of node.kernels) {
      const kernel = graph.kernels[k];
      if (kernel.cost === "unknown") found.set(kernel.op, [...(found.get(kernel.op) ?? []), i]);
    }
  });
  const entries = [...found].map(([op, nodes]) =>
    entry(op, `× ${nodes.length}`, () => app.light(`unknown:${op}`, nodes)),
  );
  return section("Costs not known", list(entries));
}

function breaks(app: App): HTMLElement {
  const { graph } = app.model;
  const entries = graph.breaks.map((b) => {
    const at = graph.nodes.find((n) => n.fragment > b.fragment);
    return entry(b.reason, b.source, () => at && void app.select(app.tree.leaf[at.index], true));
  });
  return section("Graph breaks", list(entries));
}
