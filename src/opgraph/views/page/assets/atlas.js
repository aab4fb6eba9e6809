"use strict";
// The page of an atlas: it searches, sorts and plots the rows in its data, and computes no cost. Names come from
// models, so they become text nodes and never markup.
(async () => {
  const bytes = Uint8Array.from(atob(document.getElementById("opgraph-data").textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const data = await new Response(stream).json();
  const column = Object.fromEntries(data.columns.map((name, i) => [name, i]));
  const latencies = data.columns.filter((name) => name.startsWith("latency_"));
  const FIGURES = ["parameters", "flops", "bytes", "peak_memory", "intensity", ...latencies];
  const LABELS = { flops: "FLOPs", intensity: "FLOPs/byte", peak_memory: "peak memory", licence: "licence" };
  const devices = Object.fromEntries(latencies.map((name, i) => [name, data.devices[i]]));
  const PAGE = 50;
  const svgNS = "http://www.w3.org/2000/svg";

  function make(parent, tag, attributes = {}, text) {
    const svg = parent instanceof SVGElement || tag === "svg";
    const found = svg ? document.createElementNS(svgNS, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) found.setAttribute(name, value);
    if (text !== undefined) found.textContent = text;
    parent.append(found);
    return found;
  }

  const label = (name) => devices[name] ? `time on ${devices[name]}` : LABELS[name] ?? name.replaceAll("_", " ");
  const scaled = (value, units, step) => {
    let i = 0;
    while (value >= step && i < units.length - 1) { value /= step; i += 1; }
    return `${value >= 100 ? value.toFixed(0) : value.toPrecision(3)}${units[i]}`;
  };
  function shown(name, value) {
    if (value === null) return "—";
    if (name.startsWith("latency_")) {
      return value >= 1 ? `${value.toPrecision(3)} s` : value >= 1e-3 ? `${(value * 1e3).toPrecision(3)} ms`
        : `${(value * 1e6).toPrecision(3)} µs`;
    }
    if (name === "bytes" || name === "peak_memory") return scaled(value, [" B", " KiB", " MiB", " GiB", " TiB"], 1024);
    if (name === "parameters" || name === "flops") return scaled(value, ["", "K", "M", "G", "T", "P"], 1000);
    return typeof value === "number" ? value.toPrecision(3) : String(value);
  }

  const root = document.getElementById("opgraph");
  root.replaceChildren();
  make(root, "h1", {}, `${data.rows.length.toLocaleString("en")} models on ${data.devices.length} devices`);
  make(root, "p", { id: "about" }, "A dot is a model at its usual sizes, in inference. Times are predicted. Both axes are logarithmic.");
  const form = make(root, "form");
  form.addEventListener("submit", (event) => event.preventDefault());

  function choice(title, id, values, chosen) {
    const select = make(make(form, "label", {}, title), "select", { id });
    for (const value of values) make(select, "option", { value }, value === "" ? "all" : label(value));
    select.value = chosen;
    select.addEventListener("change", draw);
    return select;
  }
  const search = make(make(form, "label", {}, "search"), "input", {
    type: "search", id: "search", placeholder: "name, family, task, licence", "aria-label": "search",
  });
  search.addEventListener("input", () => { page = 0; draw(); });
  const tasks = [...new Set(data.rows.map((row) => row[column.task]))].filter(Boolean).sort();
  const task = choice("task", "task", ["", ...tasks], "");
  const xAxis = choice("horizontal axis", "across", FIGURES, "flops");
  const yAxis = choice("vertical axis", "up", FIGURES, latencies[0] ?? "parameters");
  const pareto = make(make(form, "label", { class: "check" }), "input", { type: "checkbox", id: "pareto" });
  pareto.checked = true;
  pareto.parentElement.append("Pareto front (least of both)");
  pareto.addEventListener("change", draw);

  const plot = make(root, "svg", { viewBox: "0 0 1000 430", role: "img", "aria-label": "scatter plot" });
  const said = make(root, "p", { id: "said" });
  const table = make(make(root, "div", { class: "scroll" }), "table");
  const nav = make(root, "nav");

  let page = 0, order = ["flops", 1], chosen = null;

  function fits(row, words) {
    if (task.value && row[column.task] !== task.value) return false;
    const text = ["name", "source", "family", "task", "licence"].map((n) => row[column[n]] ?? "").join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  }

  function found() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const [by, way] = order, i = column[by];
    return data.rows.filter((row) => fits(row, words)).sort((a, b) => {
      if (a[i] === null || b[i] === null) return (a[i] === null) - (b[i] === null);
      return way * (typeof a[i] === "number" ? a[i] - b[i] : String(a[i]).localeCompare(String(b[i])));
    });
  }

  // The points that no other has less of both of.
  function front(points) {
    const kept = [];
    let least = Infinity;
    for (const point of [...points].sort((a, b) => a.x - b.x || a.y - b.y)) {
      if (point.y < least) { kept.push(point); least = point.y; }
    }
    return kept;
  }

  function ticks(low, high) {
    const out = [];
    for (let e = Math.floor(low); e <= Math.ceil(high); e += 1) if (e >= low && e <= high) out.push(e);
    const step = Math.ceil(out.length / 8);
    return out.filter((_, i) => i % step === 0);
  }

  function drawPlot(rows) {
    plot.replaceChildren();
    const [x, y] = [xAxis.value, yAxis.value];
    const points = rows.map((row) => ({ row, x: row[column[x]], y: row[column[y]] })).filter((p) => p.x > 0 && p.y > 0);
    const left = 80, right = 985, top = 14, bottom = 385;
    if (!points.length) { make(plot, "text", { x: 500, y: 200, "text-anchor": "middle" }, "nothing to plot"); return; }
    const range = (key) => {
      const logs = points.map((p) => Math.log10(p[key]));
      const low = logs.reduce((a, b) => Math.min(a, b)), high = logs.reduce((a, b) => Math.max(a, b));
      const room = Math.max(0.04 * (high - low), 0.05);
      return [low - room, high + room];
    };
    const [x0, x1] = range("x"), [y0, y1] = range("y");
    const px = (v) => left + (Math.log10(v) - x0) / (x1 - x0) * (right - left);
    const py = (v) => bottom - (Math.log10(v) - y0) / (y1 - y0) * (bottom - top);
    for (const e of ticks(x0, x1)) {
      make(plot, "line", { class: "grid", x1: px(10 ** e), x2: px(10 ** e), y1: top, y2: bottom });
      make(plot, "text", { x: px(10 ** e), y: bottom + 16, "text-anchor": "middle" }, shown(x, 10 ** e));
    }
    for (const e of ticks(y0, y1)) {
      make(plot, "line", { class: "grid", x1: left, x2: right, y1: py(10 ** e), y2: py(10 ** e) });
      make(plot, "text", { x: left - 6, y: py(10 ** e) + 4, "text-anchor": "end" }, shown(y, 10 ** e));
    }
    make(plot, "text", { x: (left + right) / 2, y: bottom + 36, "text-anchor": "middle" }, label(x));
    make(plot, "text", { x: 14, y: (top + bottom) / 2, transform: `rotate(-90 14 ${(top + bottom) / 2})`, "text-anchor": "middle" }, label(y));
    const best = new Set(pareto.checked ? front(points) : []);
    for (const p of points) {
      const classes = ["dot", best.has(p) ? "front" : "", p.row === chosen ? "chosen" : ""].join(" ").trim();
      const dot = make(plot, "circle", { class: classes, cx: px(p.x).toFixed(1), cy: py(p.y).toFixed(1), r: best.has(p) ? 4.5 : 3.5 });
      make(dot, "title", {}, `${p.row[column.name]}: ${shown(x, p.x)}, ${shown(y, p.y)}`);
      dot.addEventListener("click", () => choose(p.row));
    }
    if (best.size) {
      make(plot, "polyline", { class: "front-line", points: [...best].map((p) => `${px(p.x).toFixed(1)},${py(p.y).toFixed(1)}`).join(" ") });
      const boxes = [];
      for (const p of best) {
        const name = String(p.row[column.name]).slice(0, 28);
        // The front falls to the right: above it and beside its points there is no line.
        const at = { x: px(p.x) + 8, y: py(p.y) - 6, w: 6.4 * name.length };
        if (at.x + at.w > right || at.y - 13 < top || boxes.some((b) => Math.abs(b.y - at.y) < 13 && at.x < b.x + b.w && b.x < at.x + at.w)) continue;
        boxes.push(at);
        make(plot, "text", { class: "name", x: at.x, y: at.y }, name);
      }
    }
  }

  function drawTable(rows) {
    table.replaceChildren();
    const device = yAxis.value.startsWith("latency_") ? yAxis.value : latencies[0];
    const names = ["name", "family", "task", "parameters", "flops", "bytes", "peak_memory", "intensity", device, "inputs", "licence"].filter(Boolean);
    const head = make(make(table, "thead"), "tr");
    for (const name of names) {
      const mark = order[0] === name ? (order[1] > 0 ? " ▲" : " ▼") : "";
      const cell = make(head, "th", FIGURES.includes(name) ? { class: "number" } : {});
      if (mark) cell.setAttribute("aria-sort", order[1] > 0 ? "ascending" : "descending");
      make(cell, "button", { type: "button", "data-column": name, title: label(name) }, (devices[name] ?? label(name)) + mark).addEventListener("click", () => {
        order = [name, order[0] === name ? -order[1] : 1];
        page = 0;
        draw();
      });
    }
    const body = make(table, "tbody");
    for (const row of rows.slice(page * PAGE, (page + 1) * PAGE)) {
      const line = make(body, "tr", row === chosen ? { class: "chosen", tabindex: 0 } : { tabindex: 0 });
      for (const name of names) make(line, "td", FIGURES.includes(name) ? { class: "number" } : {}, shown(name, row[column[name]]));
      line.addEventListener("click", () => choose(row));
      line.addEventListener("keydown", (event) => { if (event.key === "Enter") choose(row); });
    }
    nav.replaceChildren();
    const last = Math.max(0, Math.ceil(rows.length / PAGE) - 1);
    for (const [text, to] of [["previous", page - 1], ["next", page + 1]]) {
      const button = make(nav, "button", { type: "button" }, text);
      button.disabled = to < 0 || to > last;
      button.addEventListener("click", () => { page = to; draw(); });
    }
    make(nav, "span", { id: "count" }, `${rows.length.toLocaleString("en")} models, page ${page + 1} of ${last + 1}`);
  }

  // A shell takes what is between single quotes as it is.
  const quoted = (text) => (/^[\w.:/@+-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

  function choose(row) {
    chosen = row;
    draw();
  }

  function drawSaid() {
    said.replaceChildren();
    if (!chosen) { said.textContent = "Choose a dot or a row: its times on all devices, and the command that makes its page, stand here."; return; }
    make(said, "strong", {}, chosen[column.name]);
    said.append(` of ${chosen[column.source]}: ${latencies.map((n) => `${devices[n]} ${shown(n, chosen[column[n]])}`).join(", ")}. Its page: `);
    make(said, "code", {}, `opgraph view ${quoted(String(chosen[column.spec]))} --open`);
  }

  function draw() {
    const rows = found();
    drawPlot(rows);
    drawSaid();
    drawTable(rows);
  }
  draw();
  root.dataset.ready = "";
})();
