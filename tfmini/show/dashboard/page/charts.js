// The charts. Rows are appended as they come; a chart that comes whole is drawn anew.
// A line has the colour of its task, as in the picture; what is no task is grey.
const SUMMARY = { lowest: ["soft", [2, 3]], median: ["ink", []], highest: ["soft", []] };
const DASHES = [[], [8, 4], [2, 3], [8, 3, 2, 3]];   // of further lines of one task, such as its queues
let colourNumbers = {};

function looksOf(labels) {
  const seen = new Map();
  return labels.map((label) => {
    if (SUMMARY[label]) return SUMMARY[label];
    const number = colourNumbers[label.split(" on ").pop()], name = number === undefined ? "soft" : "t" + number;
    seen.set(name, (seen.get(name) || 0) + 1);
    return [name, DASHES[(seen.get(name) - 1) % DASHES.length]];
  });
}

const drawnCharts = new Map();   // id -> {plot, data, unit, box, labels}
let spanSeconds = 1200;

function drawCharts(charts, now, colours) {
  const old = JSON.stringify(colourNumbers);
  colourNumbers = colours;
  if (old !== JSON.stringify(colours)) renewCharts();
  const wanted = new Set(charts.map((chart) => chart.id));
  for (const [id, chart] of drawnCharts) if (!wanted.has(id)) { chart.plot.destroy(); chart.box.remove(); drawnCharts.delete(id); }
  charts.forEach((chart) => {
    const old = drawnCharts.get(chart.id);
    if (chart.whole || !old) replaceChart(chart, now);
    else appendRows(old, chart, now);
  });
}

// Draws all charts anew, in other colours.
function renewCharts() {
  for (const [id, chart] of [...drawnCharts]) {
    drawnCharts.delete(id);
    chart.plot.destroy(); chart.box.remove();
    replaceChart({ id, title: chart.title, unit: chart.unit, labels: chart.labels, times: chart.data[0], columns: chart.data.slice(1) }, chart.now);
  }
}
darkScreen.addEventListener("change", renewCharts);

function appendRows(chart, more, now) {
  chart.data[0].push(...more.times);
  more.columns.forEach((column, i) => chart.data[i + 1].push(...column));
  const first = chart.data[0].findIndex((time) => time >= now - 3600);
  if (first > 0) chart.data.forEach((column) => column.splice(0, first));
  show(chart, now);
}

function replaceChart(chart, now) {
  const data = [chart.times, ...chart.columns], old = drawnCharts.get(chart.id);
  if (old && old.labels.join("\n") === chart.labels.join("\n")) { old.data = data; show(old, now); return; }
  if (old) { old.plot.destroy(); old.box.remove(); }
  const box = element("div", null, "chart");
  box.append(element("h2", chart.title));
  $("charts").append(box);
  const made = { data, unit: chart.unit, title: chart.title, box, labels: chart.labels, now }, looks = looksOf(chart.labels);
  const ink = cssColour("soft"), grid = { stroke: cssColour("edge"), width: 0.5 };
  const series = chart.labels.map((label, i) => ({
    label, stroke: cssColour(looks[i][0]), dash: looks[i][1], width: 1.5, spanGaps: false, points: { show: false }, value: (_, v) => valueText(v, chart.unit),
  }));
  made.plot = new uPlot({
    width: Math.max(320, box.clientWidth), height: 150, series: [{ label: "time", value: (_, v) => (v === null ? "" : clockTime(v)) }, ...series],
    scales: { x: { range: () => [Math.max(made.now - spanSeconds, Math.min(made.data[0][0], made.now - 60)), made.now] }, y: { range: (_, low, high) => limits(low, high, chart.id.startsWith("scalar")) } },
    axes: [{ stroke: ink, grid, ticks: grid, font: "11px sans-serif", size: 28, space: 72, values: (_, ticks) => ticks.map((v) => new Date(v * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...(ticks[ticks.length - 1] - ticks[0] < 600 ? { second: "2-digit" } : {}) })) },
      { stroke: ink, grid, ticks: grid, font: "11px sans-serif", size: 78, values: (_, ticks) => ticks.map((v) => valueText(v, chart.unit)) }],
    cursor: { sync: { key: "time" }, drag: { x: false, y: false } },
  }, data, box);
  drawnCharts.set(chart.id, made);
  show(made, now);
  // The order of the page is that of the message, also for a chart that comes later.
  orderCharts();
}

let chartOrder = [];
function orderCharts() {
  for (const id of chartOrder) if (drawnCharts.has(id)) $("charts").append(drawnCharts.get(id).box);
}

function limits(low, high, isScalar) {
  if (low === null || high === null) return [0, 1];
  if (!isScalar) return [0, high > 0 ? high * 1.1 : 1];
  const room = (high - low || Math.abs(high) || 1) * 0.08;
  return [low - room, high + room];
}

function show(chart, now) {
  chart.now = now;
  chart.plot.setData(chart.data);
  if (chart.plot.cursor.idx === null || chart.plot.cursor.idx === undefined) chart.plot.setLegend({ idx: chart.data[0].length - 1 });
}
$("span").onchange = () => { spanSeconds = Number($("span").value); for (const chart of drawnCharts.values()) show(chart, chart.now); };
new ResizeObserver(() => {
  for (const chart of drawnCharts.values()) chart.plot.setSize({ width: Math.max(320, chart.box.clientWidth), height: 150 });
}).observe($("charts"));
