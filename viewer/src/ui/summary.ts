// The panel when nothing is chosen: the model, its totals, how it was traced, and what is not known.

import type { App } from "../app";
import type { Measure } from "../data/costs";
import type { Difference } from "../data/difference";
import type { Graph } from "../data/graph";
import * as format from "../format";
import { h } from "./dom";
import { figure, link, list, rows, section } from "./parts";

export function summary(app: App): HTMLElement[] {
  const { model, costs } = app;
  const { graph } = model;
  const unknown = costs.total("unknown");
  const kernels = costs.total("kernels");
  const own = graph.parameters.filter((p) => p.kind === "parameter");
  const count = own.reduce((sum, p) => sum + p.numel, 0);
  const bytes = own.reduce((sum, p) => sum + p.bytes, 0);
  const work = costs.total("flops") + costs.total("otherFlops");
  const failed = graph.nodes.filter((n) => n.error);
  const time = costs.total("time");
  const parts: (HTMLElement | null)[] = [
    h("header", { class: "panel-head" }, h("div", { class: "panel-kind" }, "model"), h("h2", null, model.name), h("div", { class: "panel-class" }, model.cls)),
    ...failed.map((n) => h("button", { type: "button", class: "alert", onclick: () => void app.select(app.tree.leaf[n.index], true) }, `The forward stopped at node ${n.id}, ${n.name}: ${n.error}`)),
    graph.broken ? h("p", { class: "alert" }, `${format.plural(graph.broken, "reference")} in this file lead nowhere and were left out.`) : null,
    rows("Totals", [
      ["parameters", `${format.count(count)} · ${format.size(bytes)}`],
      ["FLOPs", format.flops(costs.total("flops"))],
      ["MACs", format.macs(costs.total("flops") / 2)],
      ["other FLOPs", format.flops(costs.total("otherFlops"))],
      ["bytes moved", format.size(costs.total("bytes"))],
      ["intensity", `${format.intensity(costs.total("bytes") ? work / costs.total("bytes") : null)} FLOPs/byte`],
      ["predicted time", time && app.device ? `${format.seconds(time)} on ${app.device.name}` : null],
      ["nodes", format.integer(graph.own)],
      ["kernels", format.integer(kernels)],
      ["cost coverage", unknown ? h("span", { class: "warn" }, `${format.percent(1 - unknown / kernels)}: ${format.plural(unknown, "kernel")} unknown`) : "100 %"],
      ["mode", model.mode],
    ]),
    app.difference ? differences(app, app.difference) : null,
    unknown ? unknowns(app) : null,
    graph.breaks.length ? breaks(app) : null,
    hotspots(app),
    rows("Traced", [
      ...model.attempts.map((a): [string, string] => [a.tracer, `${a.tensors} tensors, ${format.seconds(a.seconds)}${a.error ? `: ${a.error}` : ""}`]),
      ...model.convention.map(([k, v]): [string, string] => [k, v]),
      ...model.versions.map(([k, v]): [string, string] => [k, v]),
    ]),
    model.notes.length ? section("Notes", ...model.notes.map((n) => h("p", { class: "text" }, n))) : null,
  ];
  return parts.filter((p) => p !== null);
}

/** What differs from the other profile, in figures, and what is gone. */
function differences(app: App, difference: Difference): HTMLElement {
  const { root } = app.tree;
  const line = (measure: Measure, write: (value: number) => string): string => {
    const [was, is] = [difference.costs.total(measure), app.costs.item(measure, root)];
    return was === is ? `${write(is)}, the same` : `${write(was)} → ${write(is)}${was ? ` (${is > was ? "+" : "−"}${format.percent(Math.abs(is / was - 1))})` : ""}`;
  };
  const counted = (graph: Graph): number => graph.parameters.reduce((sum, p) => sum + (p.kind === "parameter" ? p.numel : 0), 0);
  const [was, is] = [counted(difference.model.graph), counted(app.model.graph)];
  const gone = difference.removed(root);
  const figures = rows(`Against ${difference.model.name}`, [
    ["parameters", was === is ? `${format.count(is)}, the same` : `${format.count(was)} → ${format.count(is)}`],
    ["FLOPs", line("flops", format.flops)],
    ["bytes moved", line("bytes", format.size)],
    ["nodes", `${format.integer(difference.model.graph.own)} → ${format.integer(app.model.graph.own)}`],
    ["removed", gone.length ? format.plural(gone.length, "node") : null],
  ]);
  const { nodes } = app.model.graph;
  if (gone.length) figures.append(list(gone.slice(0, 60).map((n) => link(app, app.tree.leaf[n], `− ${nodes[n].name}`, nodes[n].op))));
  return figures;
}

function hotspots(app: App): HTMLElement {
  const all = app.hotspots().map((n) => link(app, app.tree.leaf[n], app.tree.leaf[n].path || app.model.graph.nodes[n].name, figure(app, app.tree.leaf[n])));
  const tools = h(
    "div",
    { class: "choices" },
    h("button", { type: "button", onclick: () => app.light("hotspots", app.hotspots()) }, "Light them"),
    h("button", { type: "button", onclick: () => app.light("path", app.dearestPath()) }, "Light the dearest path"),
  );
  return section("Ten hotspots", tools, list(all));
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
    h("button", { type: "button", class: "link", onclick: () => app.light(`unknown:${op}`, nodes) }, h("span", { class: "value" }, op), h("span", { class: "note" }, `× ${nodes.length}`)),
  );
  return section("Costs not known", list(entries));
}

function breaks(app: App): HTMLElement {
  const { graph } = app.model;
  const entries = graph.breaks.map((b) => {
    const at = graph.nodes.find((n) => n.fragment > b.fragment);
    return h(
      "button",
      { type: "button", class: "link", onclick: () => at && void app.select(app.tree.leaf[at.index], true) },
      h("span", { class: "value" }, b.reason),
      h("span", { class: "note" }, b.source),
    );
  });
  return section("Graph breaks", list(entries));
}
