// Every number that a person reads is formatted here, in the words of `opgraph.record.units`.

import type { Dim } from "./data/document";

const DECIMAL: [number, string][] = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
const BINARY: [number, string][] = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];

export function significant(value: number): string {
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
  if (value > 0 && value < 0.01) return value.toExponential(1).replace(/e([+-])(\d)$/, "e$10$2");
  return hundredths(value);
}

/** Two decimals; what lies exactly between two of them goes to the even one, as Python rounds. */
function hundredths(value: number): string {
  const scaled = value * 100;
  const floor = Math.floor(scaled);
  if (scaled - floor !== 0.5 || scaled / 100 !== value) return value.toFixed(2);
  return ((floor % 2 === 0 ? floor : floor + 1) / 100).toFixed(2);
}

/** 22.35 GFLOPs with a unit; 109.48M without one. */
export function count(value: number, unit = ""): string {
  const found = DECIMAL.find(([factor]) => Math.abs(value) >= factor * 0.99995);
  const scaled = significant(found ? value / found[0] : value);
  const prefix = found ? found[1] : "";
  if (unit) return `${scaled} ${prefix}${unit}`;
  return scaled + prefix.toUpperCase();
}

export const flops = (value: number): string => count(value, "FLOPs");
export const macs = (value: number): string => count(value, "MACs");
export const integer = (value: number): string => Math.round(value).toLocaleString("en-US");

/** Bytes in binary units: 417.65 MiB. */
export function size(value: number): string {
  const found = BINARY.find(([factor]) => Math.abs(value) >= factor * 0.99995);
  return found ? `${significant(value / found[0])} ${found[1]}` : `${significant(value)} B`;
}

export function percent(share: number): string {
  return share < 0.9995 || share > 1.0005 ? `${(share * 100).toFixed(1)} %` : "100 %";
}

export function seconds(exact: number): string {
  const value = Number(exact.toPrecision(9));
  if (value >= 0.9995) return `${value.toFixed(2)} s`;
  if (value >= 0.0009995) return `${(value * 1e3).toFixed(1)} ms`;
  // What would be nothing in microseconds is told in nanoseconds.
  return value >= 0.5e-6 || value === 0 ? `${(value * 1e6).toFixed(0)} µs` : `${(value * 1e9).toFixed(0)} ns`;
}

export function intensity(value: number | null): string {
  if (value === null) return "—";
  return value < 999.95 ? value.toFixed(1) : integer(value);
}

export function shape(dims: readonly Dim[]): string {
  return dims.join("×") || "scalar";
}

export function plural(value: number, noun: string): string {
  return `${integer(value)} ${noun}${value === 1 ? "" : noun.endsWith("x") ? "es" : "s"}`;
}
