// A button that drops a sheet; a click elsewhere or Escape closes it.

import { button, div, h, type Props, span } from "./dom";

export function popover(label: string, d: string, make: () => HTMLElement, props: Props = {}): HTMLElement {
  let sheet: HTMLElement | null = null;
  const holder = div("popover");
  const close = (): void => {
    sheet?.remove();
    opener.setAttribute("aria-expanded", "false");
    document.removeEventListener("pointerdown", outside, true);
  };
  const outside = (event: Event): void => {
    if (!event.composedPath().includes(holder)) close();
  };
  const opener = button(label, d, () => {
    if (sheet?.isConnected) return close();
    sheet ??= make();
    holder.append(sheet);
    opener.setAttribute("aria-expanded", "true");
    document.addEventListener("pointerdown", outside, true);
    (sheet.querySelector("button, input, select") as HTMLElement | null)?.focus({ preventScroll: true });
  }, { "aria-expanded": "false", ...props });
  holder.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !sheet?.isConnected) return;
    event.stopPropagation();
    close();
    opener.focus();
  });
  holder.addEventListener("close", close);
  holder.append(opener);
  return holder;
}

/** Lines of a menu. */
export function menu(entries: [string, string, () => void][]): HTMLElement {
  return h("div", { class: "sheet menu", role: "menu" }, ...entries.map(([name, note, run]) =>
    h("button", { type: "button", role: "menuitem", onclick: (event: MouseEvent) => {
      (event.currentTarget as HTMLElement).closest(".popover")?.dispatchEvent(new Event("close"));
      run();
    } }, h("span", null, name), span("note", note)),
  ));
}
