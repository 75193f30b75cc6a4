// Texts of numbers and times, and small elements.
const $ = (id) => document.getElementById(id);
const token = new URLSearchParams(location.search).get("token") || "";
const address = (path, values) => path + "?" + new URLSearchParams({ token, ...values });

function scaled(value, unit) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const prefixes = ["", "k", "M", "G", "T"];
  let i = 0;
  while (Math.abs(value) >= 999.5 && i < prefixes.length - 1) { value /= 1000; i += 1; }
  const digits = Math.abs(value) >= 99.5 || Number.isInteger(value) ? 0 : Math.abs(value) >= 9.95 ? 1 : 2;
  const text = value && Math.abs(value) < 0.0995 ? String(+value.toPrecision(2)) : value.toFixed(digits);  // an axis has 0.005 and 0.01
  return text + (unit || prefixes[i] ? " " : "") + prefixes[i] + unit;
}
// Values of a chart: of scalars without a unit small ones need their digits.
const valueText = (value, unit) => (value === null || value === undefined ? "–" : unit === "" && Math.abs(value) < 1 ? String(+value.toPrecision(3)) : scaled(value, unit));
const duration = (s) => (s < 10 ? s.toFixed(1) + " s" : s < 120 ? s.toFixed(0) + " s" : s < 7200 ? (s / 60).toFixed(0) + " min" : (s / 3600).toFixed(1) + " h");
const clockTime = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");

function element(kind, text, name) {
  const made = document.createElement(kind);
  if (text !== undefined && text !== null) made.textContent = text;
  if (name) made.className = name;
  return made;
}
function row(text, action) {
  const made = element("div", text, action ? "row open" : "row");
  return action ? asButton(made, action) : made;
}
const isNumber = (text) => /^[\d.,–]+( \w+(\/s)?)?$/.test(text);
function table(heads, rows) {
  const made = element("table");
  const line = (cells, kind) => {
    const tr = element("tr");
    cells.forEach((cell, i) => tr.append(element(kind, cell, heads.length && isNumber(kind === "th" && rows.length ? rows[0][i] : cell) ? "number" : "")));
    made.append(tr);
  };
  if (heads.length) line(heads, "th");
  rows.forEach((cells) => line(cells, "td"));
  return made;
}
