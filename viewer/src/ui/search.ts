// The search field: hits are lit as one types and stepped through with Enter.

import type { App } from "../app";
import * as format from "../format";
import { button, h, icon, ICONS } from "./dom";

export function searchField(app: App): { element: HTMLElement; focus: () => void } {
  const input = h("input", {
    type: "search", placeholder: "Search name, operator, class, shape", "aria-label": "Search",
    spellcheck: "false", autocomplete: "off",
  });
  const count = h("output", { class: "hits" });
  const before = button("Previous hit", ICONS.prev, () => void app.stepHit(-1));
  const after = button("Next hit", ICONS.next, () => void app.stepHit(1));
  const element = h("div", { class: "search", role: "search" }, icon(ICONS.search), input, count, before, after);
  let pause = 0;
  input.addEventListener("input", () => {
    clearTimeout(pause);
    pause = window.setTimeout(() => app.search(input.value), 90);
  });
  input.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Enter") {
      clearTimeout(pause);
      if (app.query !== input.value) app.search(input.value);
      void app.stepHit(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape") {
      input.value = "";
      app.search("");
      input.blur();
    }
  });
  app.on("search", () => {
    if ((input.getRootNode() as Document | ShadowRoot).activeElement !== input) input.value = app.query;
    const at = app.hit >= 0 ? `${format.integer(app.hit + 1)} of ` : "";
    const none = app.query.trim() ? "none" : "";
    count.textContent = app.hits.length ? at + format.integer(app.hits.length) : none;
    element.classList.toggle("active", app.hits.length > 0);
  });
  return { element, focus: () => input.focus() };
}
