// The page on paper: the graph as it is seen, the legend, and what the panel says, in the light theme. It is
// made when printing starts, because a canvas and columns that scroll do not print.

import type { App } from "../app";
import { seen, svg } from "./export";
import { fill, h } from "./dom";

export function paper(app: App, parts: () => HTMLElement[]): HTMLElement {
  const element = h("section", { class: "paper" });
  let theme = app.themeChoice;
  const before = (): void => {
    theme = app.themeChoice;
    app.setTheme("light");
    fill(element, h("h1", null, app.model.name), picture(app), ...parts().map(still));
  };
  const after = (): void => {
    fill(element);
    app.setTheme(theme);
  };
  for (const [event, act] of [["beforeprint", before], ["afterprint", after]] as const) {
    const listen = (): void => (element.isConnected ? act() : globalThis.removeEventListener(event, listen));
    globalThis.addEventListener(event, listen);
  }
  return element;
}

function picture(app: App): Node {
  const drawn = new DOMParser().parseFromString(svg(app, seen(app)), "image/svg+xml");
  return document.importNode(drawn.documentElement, true);
}

/** A part as it is now, without what is there to be clicked. */
function still(part: HTMLElement): HTMLElement {
  const copy = part.cloneNode(true) as HTMLElement;
  copy.removeAttribute("hidden");
  for (const tool of copy.querySelectorAll(".tool, .panel-tools, .choices")) tool.remove();
  return copy;
}
