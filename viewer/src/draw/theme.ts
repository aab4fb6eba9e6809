// The colours and letters of the page, light and dark. Categories use hues that people with a colour
// deficiency tell apart (after Okabe and Ito); ramps rise steadily in lightness.

export const LIGHT = {
  dark: false as boolean,
  canvas: "#f7f7f5",
  card: "#ffffff",
  border: "#d9dbd6",
  text: "#1d2129",
  muted: "#666c78",
  faint: "#69707d",
  edge: "#a9aeb8",
  residual: "#4b5563",
  accent: "#2457d6",
  hit: "#e0a100",
  into: "#0072b2",
  out: "#c2410c",
  /** Fills of open containers by depth. */
  nest: ["#fdfdfc", "#f5f6f4", "#fdfdfc", "#f3f4f2"],
  nestBorder: "#d5d8d3",
  error: "#c81e3a",
  ramp: ["#fffdf7", "#fdeecb", "#fbd08d", "#f5a35c", "#e56c4a", "#bf3b56", "#7d1d5a"],
  none: "#c9ccd2",
};

export type Theme = typeof LIGHT;

export const DARK: Theme = {
  dark: true,
  canvas: "#0f1216",
  card: "#1b1f26",
  border: "#353b46",
  text: "#e9ebef",
  muted: "#a0a7b4",
  faint: "#8f98a6",
  edge: "#566070",
  residual: "#c3cad6",
  accent: "#7aa5ff",
  hit: "#ffc83d",
  into: "#56b4e9",
  out: "#ff9d5c",
  nest: ["#14181d", "#191d24", "#14181d", "#1a1f26"],
  nestBorder: "#333a45",
  error: "#ff6b7f",
  ramp: ["#252a34", "#3a2b47", "#5f2b57", "#8f335b", "#c24d52", "#ea8c4c", "#fbd58f"],
  none: "#4a515d",
};

export const FAMILY =
  `"Inter Variable", ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif`;

export function font(size: number, weight = 400): string {
  return `${weight} ${size}px ${FAMILY}`;
}

type Rgb = [number, number, number];

function rgb(colour: string): Rgb {
  const value = parseInt(colour.slice(1), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

const mixed = new Map<string, string>();

/** `share` of the second colour in the first. */
export function mix(a: string, b: string, share: number): string {
  const step = Math.round(Math.min(1, Math.max(0, share)) * 256);
  const key = `${a}${b}${step}`;
  let found = mixed.get(key);
  if (!found) {
    const [from, to] = [rgb(a), rgb(b)];
    const parts = from.map((v, i) => Math.round(v + ((to[i] - v) * step) / 256));
    found = "#" + parts.map((v) => v.toString(16).padStart(2, "0")).join("");
    mixed.set(key, found);
  }
  return found;
}

/** A colour of the ramp for 0 to 1. */
export function ramp(theme: Theme, share: number): string {
  const at = Math.min(1, Math.max(0, share)) * (theme.ramp.length - 1);
  const low = Math.min(Math.floor(at), theme.ramp.length - 2);
  return mix(theme.ramp[low], theme.ramp[low + 1], at - low);
}

/** How light a colour is to the eye, 0 to 1 (relative luminance of WCAG 2). */
export function luminance(colour: string): number {
  const [r, g, b] = rgb(colour).map((v) => {
    const s = v / 255;
    return s <= 0.04045 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** Dark or light letters, whichever is read better on a fill. */
export function ink(fill: string): { text: string; muted: string } {
  return luminance(fill) > 0.24
    ? { text: "#1d2129", muted: mix("#1d2129", fill, 0.3) }
    : { text: "#f4f5f7", muted: mix("#f4f5f7", fill, 0.28) };
}
