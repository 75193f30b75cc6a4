// Sizes for people, and the colours of loads.
const $ = (id) => document.getElementById(id);
const size = (bytes) => (bytes === null ? "? B" : bytes.toLocaleString("en") + " B");

function human(bytes) {
  let value = bytes, unit = 0;
  while (value >= 999.5 && unit < 4) { value /= 1000; unit += 1; }
  return (unit && value < 99.5 ? Number(value.toPrecision(2)) : Math.round(value)) + " " + ["B", "kB", "MB", "GB", "TB"][unit];
}

// From the colour of the paper (nothing) to that of the most; anything above nothing is visible. It is blue, since red
// says that something is wrong.
const SCALES = { light: [[255, 255, 255], [198, 219, 239], [66, 146, 198], [8, 48, 107]], dark: [[27, 30, 36], [30, 64, 104], [58, 134, 200], [196, 226, 255]] };
function colour(share) {
  const stops = SCALES[darkScreen.matches ? "dark" : "light"], at = share > 0 ? 0.08 + 0.92 * Math.min(1, share) : 0;
  const low = Math.min(2, Math.floor(at * 3)), part = at * 3 - low;
  return "rgb(" + stops[low].map((c, i) => Math.round(c + (stops[low + 1][i] - c) * part)).join(",") + ")";
}
const inkOn = (share) => (share > 0.55 ? (darkScreen.matches ? "#111" : "#fff") : cssColour("ink"));
