// The way into the bundle: `opgraph.page` for a file, `opgraph.render` for a notebook.

import type { PageJson } from "./data/document";
import { mount } from "./mount";
import { bind } from "./url";

export { mount } from "./mount";
export { render } from "./widget";

/** Start the file page: the data is in the script element of that id. */
export function page(): void {
  const host = document.getElementById("opgraph") as HTMLElement;
  const data = document.getElementById("opgraph-data")?.textContent ?? "{}";
  const mounted = mount(host, JSON.parse(data) as PageJson, location.hash);
  // What is there says that the page is being read.
  host.replaceChildren();
  bind(mounted.app);
  Object.assign(globalThis, { opgraphApp: mounted.app });
}
