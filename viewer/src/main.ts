// The way into the bundle: `opgraph.page` for a file, `opgraph.render` for a notebook.

import type { PageJson } from "./data/document";
import { decoded, mount } from "./mount";
import { bind } from "./url";

export { mount } from "./mount";
export { render } from "./widget";

/** Start the file page: the data is in the script element of that id, deflated and in base 64. */
export async function page(): Promise<void> {
  const host = document.getElementById("opgraph") as HTMLElement;
  const packed = new Blob([decoded(document.getElementById("opgraph-data")?.textContent ?? "")]);
  const data = new Response(packed.stream().pipeThrough(new DecompressionStream("deflate"))).json();
  const mounted = mount(host, (await data) as PageJson, location.hash);
  // What is there says that the page is being read.
  host.replaceChildren();
  bind(mounted.app);
  // A key that nothing has the focus for is the graph's.
  document.addEventListener("keydown", (event) => {
    const graph = host.shadowRoot?.querySelector("canvas.graph");
    if (event.target === document.body && !graph?.dispatchEvent(new KeyboardEvent("keydown", event))) event.preventDefault();
  });
  Object.assign(globalThis, { opgraphApp: mounted.app });
}
