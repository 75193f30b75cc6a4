"use strict";
// Sizes for people, and the colours of loads.
const $ = (id) => document.getElementById(id);
const size = (bytes) => (bytes === null ? "? B" : bytes.toLocaleString("en") + " B");

function human(bytes) {
  let value = bytes, unit = 0;
  while (value >= 999.5 && unit < 4) { value /= 1000; unit += 1; }
  return (unit && value < 99.5 ? Number(value.toPrecision(2)) : Math.round(value)) + " " + ["B", "kB", "MB", "GB", "TB"][unit];
}

// From white (nothing) to dark red (the most); anything above nothing is visible.
function colour(share) {
  if (!(share > 0)) return "#ffffff";
  const at = 0.08 + 0.92 * Math.min(1, share);
  const stops = [[255, 255, 255], [253, 212, 158], [239, 101, 72], [153, 0, 13]];
  const low = Math.min(2, Math.floor(at * 3)), part = at * 3 - low;
  return "rgb(" + stops[low].map((c, i) => Math.round(c + (stops[low + 1][i] - c) * part)).join(",") + ")";
}
const inkOn = (share) => (share > 0.6 ? "#fff" : "#222");
