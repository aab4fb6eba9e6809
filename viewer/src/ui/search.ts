// The search field: hits are lit as one types and stepped through with Enter.

import type { App } from "../app";
import * as format from "../format";
import { button, h, icon, ICONS } from "./dom";

export function searchField(app: App): { element: HTMLElement; focus: () => void } {
  const input = h("input", {
    type: "search", placeholder: "Search", "aria-label": "Search", title: "Name, operator, class or shape (/)",
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
  const say = (): void => {
    if ((input.getRootNode() as Document | ShadowRoot).activeElement !== input) input.value = app.query;
    const all = format.integer(app.hits.length);
    const none = app.query.trim() ? "none" : "";
    const boxes = app.hitBoxes();
    const seen = boxes < app.hits.length ? `${all} in ${boxes} box${boxes > 1 ? "es" : ""}` : all;
    count.textContent = !app.hits.length ? none : app.hit >= 0 ? `${format.integer(app.hit + 1)} of ${all}` : seen;
    element.classList.toggle("active", app.hits.length > 0);
  };
  app.on("search", say);
  app.on("scene", say);
  return { element, focus: () => input.focus() };
}
