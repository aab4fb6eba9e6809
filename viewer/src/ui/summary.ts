// The panel when nothing is chosen: the model, its totals, how it was traced, and what is not known.

import type { App } from "../app";
import type { Bound } from "../data/costs";
import { clean } from "../data/document";
import { nodesOf } from "../data/costliest";
import type { Difference } from "../data/difference";
import * as format from "../format";
import { copyText, div, h, p, press, span } from "./dom";
import { entry, link, list, rows, section, shareText } from "./parts";

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
  const parts: (HTMLElement | null)[] = [
    h(
      "header", { class: "panel-head" }, div("panel-kind", "model"), h("h2", null, model.name),
      div("panel-class", model.cls),
    ),
    ...failed.map((n) => {
      const what = `The forward stopped at node ${n.id}, ${n.name}: ${n.error}`;
      return press(what, () => void app.select(app.tree.leaf[n.index], true), { class: "alert" });
    }),
    graph.broken
      ? p("alert", `${format.plural(graph.broken, "reference")} in this file lead nowhere and were left out.`)
      : null,
    rows("Totals", [
      ["parameters", `${format.count(count)} · ${format.size(bytes)}`],
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
    bounds(app),
    app.difference ? differences(app, app.difference) : null,
    unknown ? unknowns(app) : null,
    graph.breaks.length ? breaks(app) : null,
    hotspots(app),
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
  const kinds: Bound[] = ["compute", timed ? "launch" : "balanced", "memory"];
  return rows(device ? `On ${device.name}` : "Bottlenecks", [
    ["measured time", measured ? `${format.seconds(measured.seconds)} on ${clean(measured.on)}` : null],
    ["predicted time", timed ? format.seconds(costs.total("time")) : null],
    ["needs", device ? fits(device.memory) : null],
    ["ridge point", device ? `${ridgeText} at ${device.dtype}` : ridgeText],
    ...kinds.map((bound): [string, string] => [
      colours.marks.bounds[bound].label, `${format.percent(shares.get(bound) ?? 0)} of ${timed
        ? "time"
        : "bytes"}`,
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

function hotspots(app: App): HTMLElement {
  const measure = app.metric;
  const all = app.hotspots().filter(({ share }) => share > 0).map((spot) => {
    const shares = spot.leaves.map((leaf) => app.costs.share(measure, leaf));
    const total = shares.reduce((sum, s) => sum + s.total, 0);
    const { times } = shares[0];
    const text = shareText(measure, { each: total / times, times, total, share: spot.share });
    return link(app, spot.item, spot.path || app.model.name, text);
  });
  const tools = div(
    "choices",
    press("Light them", () => app.light("hotspots", app.hotspots().flatMap(nodesOf))),
    press("Light the costliest path", () => app.lightPath()),
  );
  return section("Hot spots", tools, list(all));
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
