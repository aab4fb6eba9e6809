// A card of 1200 x 630 to be shown where links are: the name, three figures, the sentence, the row of shares, and the
// graph as it is open.

import type { App } from "../app";
import { fitted } from "../draw/camera";
import { Painter } from "../draw/painter";
import { CanvasPen, fit, measure } from "../draw/pen";
import { mix } from "../draw/theme";
import * as format from "../format";
import { bitmap } from "./export";

export const CARD = { width: 1200, height: 630 };
const LEFT = 52;
/** Where the graph begins. */
const GRAPH = 700;

/** The card at twice its size. */
export function card(app: App): Promise<Blob> {
  const { theme, costs, scene } = app;
  const { width, height } = CARD;
  const [ctx, done] = bitmap(width * 2, height * 2);
  ctx.setTransform(2, 0, 0, 2, 0, 0);
  const pen = new CanvasPen(ctx, 2);
  pen.rect(0, 0, width, height, 0, { fill: theme.card });
  const room = GRAPH - LEFT - 40;
  pen.text(app.model.name, LEFT, 110, { size: 46, weight: 700, fill: theme.text, max: room });
  pen.text(app.model.cls.split(".").pop() ?? "", LEFT, 148, { size: 22, fill: theme.muted, max: room });
  const timed = costs.total("time") > 0;
  const figures: [string, string][] = [
    [format.count(costs.parameterCount(app.tree.root)), "parameters"],
    [format.count(costs.total("flops")).replace(/B$/, "G"), "FLOPs"],
    timed ? [format.seconds(costs.total("time")), "predicted"] : [format.size(costs.total("bytes")), "moved"],
  ];
  figures.forEach(([value, name], i) => {
    const x = LEFT + (i * room) / 3;
    pen.text(value, x, 240, { size: 36, weight: 650, fill: theme.text, max: room / 3 - 12 });
    pen.text(name, x, 268, { size: 18, fill: theme.muted });
  });
  lines(app.headline()[0], 22, room).slice(0, 5).forEach((line, i) =>
    pen.text(line, LEFT, 330 + i * 32, { size: 22, fill: theme.text }),
  );
  let x = LEFT;
  for (const [item, share] of app.row()) {
    const { colour } = app.colours.look(item);
    const w = share * room;
    pen.rect(x, 508, Math.max(w - 1.5, 0.8), 44, 3, { fill: mix(theme.card, colour, 0.45) });
    pen.rect(x, 546, Math.max(w - 1.5, 0.8), 6, 1, { fill: colour });
    if (w > 46) pen.text(item.label, x + 7, 534, { size: 16, fill: theme.text, max: w - 12 });
    x += w;
  }
  pen.text("opgraph", LEFT, 596, { size: 20, weight: 600, fill: theme.accent });
  if (scene) {
    const into = { width: width - GRAPH, height };
    const camera = fitted(scene.root, into.width, into.height, 18);
    const view = { x: camera.x, y: camera.y, w: into.width / camera.zoom, h: into.height / camera.zoom };
    pen.rect(GRAPH, 0, into.width, height, 0, { fill: theme.canvas });
    const k = camera.zoom * 2;
    ctx.setTransform(k, 0, 0, k, GRAPH * 2 - camera.x * k, -camera.y * k);
    new Painter(app.model.graph, app.colours, theme, camera.zoom, view, {
      ...app.marks(), selected: null, hovered: null, current: null, into: [], out: [],
    }).paint(scene, new CanvasPen(ctx, k));
  }
  return done();
}

/** A text in lines that fit. */
function lines(text: string, size: number, room: number): string[] {
  const found = [""];
  for (const word of text.split(" ")) {
    const longer = `${found[found.length - 1]} ${word}`.trim();
    if (measure(longer, size, 400) <= room) found[found.length - 1] = longer;
    else found.push(fit(word, size, 400, room));
  }
  return found;
}
