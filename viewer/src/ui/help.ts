// What the pointer and the keys do.

import { h, p } from "./dom";

const KEYS: [string, string][] = [
  ["Click a module", "open or close it"],
  ["Click twice", "open or close all beneath it"],
  ["Wheel, pinch, + −", "zoom"],
  ["Drag, W A S D", "move"],
  ["↑ ↓", "node before or after"],
  ["← →", "out of a module, into it"],
  ["Enter, Shift Enter", "open or close, with all beneath"],
  [", .", "other repeats of a fold"],
  ["F", "fit the whole graph"],
  ["G", "go to what is chosen"],
  ["E, C, R", "open all, close all, as at first"],
  ["Shift E", "open all, every repeat by itself"],
  ["/, N, P", "search, next hit, previous hit"],
  ["H", "light the ten hot spots"],
  ["X", "light the costliest path"],
  ["T", "light or dark"],
  ["?", "this help"],
  ["Esc", "put out the light, choose nothing"],
];

export function help(): HTMLElement {
  return h(
    "div",
    { class: "sheet help", role: "dialog", "aria-label": "Help", tabindex: "-1" },
    h("dl", null, ...KEYS.flatMap(([keys, what]) => [h("dt", null, keys), h("dd", null, what)])),
    p("note", "Search takes op:, class:, name:, shape:, dtype:, kernel: and file: before a word."),
    p("note", "The address of the page holds what you see."),
  );
}
