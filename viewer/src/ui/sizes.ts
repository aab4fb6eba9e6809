// Batch, tokens, image side: the sizes that the profile's formulas leave open, as sliders.

import type { App } from "../app";
import * as format from "../format";
import { div, fill, h, p, press } from "./dom";

/** A slider's position, 0 to 100, for a size from 1 to `most`, and back: each doubling is as long. */
const position = (size: number, most: number): number => (Math.log2(size) / Math.log2(most)) * 100;
const sizeAt = (at: number, most: number): number => Math.max(1, Math.round(2 ** ((at / 100) * Math.log2(most))));

export function sizesSheet(app: App): HTMLElement {
  const { formulas } = app.model;
  const element = h("div", { class: "sheet sizes", role: "dialog", "aria-label": "Sizes" });
  if (!formulas) return element;
  const point = app.sizes ? [...app.sizes] : formulas.base;
  const verdict = h("p", { class: "note", role: "status" });
  const inputs: [HTMLInputElement, HTMLInputElement, number][] = [];
  const apply = (): void => {
    const holds = app.setSizes(point);
    const peak = formulas.total("peak_memory", point);
    const same = point.every((size, i) => size === formulas.base[i]);
    verdict.className = holds || same ? "note" : "note warn";
    verdict.textContent = !holds && !same
      ? "No formula holds at these sizes; what is shown is as before."
      : [
        format.flops(app.costs.total("flops")), `${format.size(app.costs.total("bytes"))} moved`,
        ...(peak === null ? [] : [`${format.size(peak)} of activations at the peak`]),
      ].join(", ");
    inputs.forEach(([slider, number, most], i) => {
      slider.value = String(position(Math.min(point[i], most), most));
      number.value = String(point[i]);
    });
  };
  const rows = formulas.variables.map((variable, i) => {
    const most = Math.max(1024, variable.value * 64);
    const set = (size: number): void => {
      point[i] = Math.max(1, Math.min(1e9, Math.round(size) || 1));
      apply();
    };
    const slider: HTMLInputElement = h(
      "input",
      {
        type: "range", min: "0", max: "100", step: "any", "aria-label": variable.meaning,
        oninput: () => set(sizeAt(Number(slider.value), most)),
      },
    );
    const number: HTMLInputElement = h(
      "input",
      {
        type: "number", min: "1", class: "size", "aria-label": `${variable.meaning}, exactly`,
        onchange: () => set(Number(number.value)),
      },
    );
    inputs.push([slider, number, most]);
    return h("label", { class: "size-row" }, h("span", null, `${variable.meaning}, ${variable.name}`), slider, number);
  });
  const reset = press("As profiled", () => {
    formulas.base.forEach((size, i) => (point[i] = size));
    apply();
  }, { class: "plain" });
  fill(
    element,
    ...rows, verdict,
    p("note", "Modules are exact, by the formulas of this profile; nodes in one module share its part as profiled."),
    p("note", "Predicted times and the memory chart are of the profiled sizes."),
    ...formulas.notes.map((n) => p("note", n)),
    div("sheet-foot", reset),
  );
  apply();
  return element;
}
