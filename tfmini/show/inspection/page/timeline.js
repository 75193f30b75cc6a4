// A traced step as bars over time: a block per task, a track per kind of work. The wheel zooms, dragging moves.
const DATA = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const ROW = 16, HEAD = 22, LEFT = 130, AXIS = 20;
const LIGHT = { op: "#4a80ad", send: "#e08a3c", wire: "#c0392b", receive: "#8a6bc3", wait: "#ddd", dispatch: "#bbb", control: "#999", exchange: "#2a9d6f", task: "#cfd8dc", step: "#b0bec5" };
const DARK = { ...LIGHT, wait: "#3a3f48", dispatch: "#565c68", control: "#6d7480", task: "#2f3d46", step: "#3d4d57" };
const colourOf = (kind) => (darkScreen.matches ? DARK : LIGHT)[kind] || "#999";
const INKS = { op: "#fff", wire: "#fff", receive: "#fff", exchange: "#fff", send: "#222" };   // of others that of the page
const KINDS = { op: "op", send: "send", wire: "in flight", receive: "receive", exchange: "collective", wait: "wait", dispatch: "ready to run", control: "RunGraph and reply" };

// Rows from top to bottom: {task} for a heading, {title, bars} for a track.
const rows = [], places = new Map();
for (const task of DATA.tasks) {
  rows.push({ task: task.name });
  for (const track of task.tracks) {
    rows.push(track);
    for (const bar of track.bars) bar.task = task.name;
  }
}
let bottom = AXIS;
for (const row of rows) { row.y = bottom; bottom += row.task ? HEAD : ROW; }
const HEIGHT = bottom + 10;
DATA.arrows.forEach((arrow) => arrow.forEach((end) => { end.y = DATA.tasks[end.task].tracks.find((t) => t.tid === end.tid).y + ROW / 2; }));

let from = 0, to = Math.max(DATA.duration, 0.001), chosen = null, width = 0;
const canvas = $("canvas"), pen = canvas.getContext("2d");
const xOf = (time) => LEFT + ((time - from) / (to - from)) * (width - LEFT);
const timeAt = (x) => from + ((x - LEFT) / (width - LEFT)) * (to - from);
const time = (us) => (us >= 1000 ? (us / 1000).toFixed(3) + " ms" : us.toFixed(1) + " µs");

function draw() {
  const ratio = window.devicePixelRatio || 1;
  width = $("scroll").clientWidth;
  canvas.width = width * ratio; canvas.height = HEIGHT * ratio;
  canvas.style.width = width + "px"; canvas.style.height = HEIGHT + "px";
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.fillStyle = cssColour("paper");
  pen.fillRect(0, 0, width, HEIGHT);
  drawAxis();
  const ink = cssColour("ink");
  for (const row of rows) if (row.bars) row.bars.forEach((bar) => drawBar(row, bar, ink));
  pen.strokeStyle = darkScreen.matches ? "rgba(255,143,133,0.6)" : "rgba(192,57,43,0.35)";
  for (const arrow of DATA.arrows) drawArrow(arrow);
  pen.fillStyle = cssColour("paper");
  pen.fillRect(0, AXIS, LEFT - 2, HEIGHT);
  for (const row of rows) drawName(row);
}

function drawAxis() {
  pen.font = "10px sans-serif"; pen.fillStyle = cssColour("soft"); pen.strokeStyle = cssColour("edge");
  const rough = (to - from) / 8, power = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) {
    const x = xOf(tick);
    pen.beginPath(); pen.moveTo(x, AXIS - 4); pen.lineTo(x, HEIGHT); pen.stroke();
    pen.fillText(time(tick), x + 2, 11);
  }
}

function drawName(row) {
  pen.fillStyle = cssColour(row.task ? "ink" : "soft");
  pen.font = row.task ? "bold 12px sans-serif" : "10px sans-serif";
  pen.fillText(row.task || row.title, row.task ? 4 : 14, row.y + (row.task ? 16 : 12));
}

function drawBar(row, bar, ink) {
  const x = xOf(bar.start), wide = Math.max(1, xOf(bar.start + bar.duration) - x);
  if (x > width || x + wide < LEFT) return;
  pen.fillStyle = colourOf(bar.kind);
  pen.fillRect(x, row.y + 1, wide, ROW - 2);
  if (bar === chosen) { pen.strokeStyle = cssColour("ring"); pen.lineWidth = 3; pen.strokeRect(x, row.y + 1, wide, ROW - 2); pen.lineWidth = 1; }
  const left = Math.max(x, LEFT), room = Math.min(x + wide, width) - left - 4;
  if (room < 24) return;
  pen.save();
  pen.beginPath(); pen.rect(left, row.y, room + 4, ROW); pen.clip();
  pen.font = "10px sans-serif"; pen.fillStyle = INKS[bar.kind] || ink;
  pen.fillText(bar.title, left + 3, row.y + 12);
  pen.restore();
}

function drawArrow(ends) {
  pen.beginPath();
  ends.forEach((end, i) => (i ? pen.lineTo(xOf(end.time), end.y) : pen.moveTo(xOf(end.time), end.y)));
  pen.stroke();
}

function barAt(x, y) {
  const row = rows.find((r) => r.bars && y >= r.y && y < r.y + ROW), at = timeAt(x), slack = (2 * (to - from)) / width;
  if (!row || x < LEFT) return null;
  return row.bars.filter((b) => at >= b.start - slack && at <= b.start + b.duration + slack).sort((a, b) => a.duration - b.duration)[0] || null;
}

// ---- the side

function line(text, kind, action) {
  const made = document.createElement(kind || "div");
  made.textContent = text;
  if (action) { made.className = "row"; asButton(made, action); }
  return made;
}

function choose(bar, zooms) {
  chosen = bar;
  if (zooms) {
    const margin = Math.max(bar.duration, DATA.duration / 200);
    [from, to] = [bar.start - margin, bar.start + bar.duration + margin];
  }
  const facts = Object.entries(bar.facts).map(([key, value]) => line(key + ": " + (typeof value === "object" ? JSON.stringify(value) : value.toLocaleString("en"))));
  $("details").replaceChildren(line(bar.title, "h2"), line(KINDS[bar.kind] ? KINDS[bar.kind] + " on " + bar.task : bar.task), line("from " + time(bar.start) + ", for " + time(bar.duration)), ...facts);
  draw();
}

const longest = rows.flatMap((row) => row.bars || []).filter((bar) => ["op", "wire", "exchange"].includes(bar.kind)).sort((a, b) => b.duration - a.duration).slice(0, 12);
$("about").replaceChildren(
  line("The step", "h3"), ...DATA.sentences.map((text) => line(text)),
  line("Longest (a click zooms)", "h3"), ...longest.map((bar) => line(time(bar.duration) + "  " + bar.title + " on " + bar.task, "div", () => choose(bar, true))),
);
function drawLegend() {
  $("legend").replaceChildren(...Object.entries(KINDS).flatMap(([kind, name]) => {
    const key = document.createElement("span");
    key.className = "key"; key.style.background = colourOf(kind);
    return [key, name];
  }));
}

// ---- the mouse

canvas.addEventListener("wheel", (event) => {
  if (event.shiftKey) return;  // the page scrolls
  event.preventDefault();
  const at = timeAt(Math.max(LEFT, event.offsetX)), factor = Math.exp(event.deltaY / 400);
  [from, to] = [at - (at - from) * factor, at + (to - at) * factor];
  draw();
}, { passive: false });
let grip = null;
canvas.addEventListener("mousedown", (event) => { grip = { x: event.offsetX, y: event.clientY, from, to, top: $("scroll").scrollTop, moved: false }; });
window.addEventListener("mousemove", (event) => {
  if (!grip) return;
  const by = event.clientX - canvas.getBoundingClientRect().left - grip.x;
  if (Math.abs(by) + Math.abs(event.clientY - grip.y) > 3) grip.moved = true;
  if (!grip.moved) return;
  const shift = (by / (width - LEFT)) * (grip.to - grip.from);
  [from, to] = [grip.from - shift, grip.to - shift];
  $("scroll").scrollTop = grip.top - (event.clientY - grip.y);
  draw();
});
window.addEventListener("mouseup", (event) => {
  const held = grip;
  grip = null;
  if (!held || held.moved || event.target !== canvas) return;
  const bar = barAt(event.offsetX, event.offsetY);
  if (bar) choose(bar, false);
});
canvas.addEventListener("mousemove", (event) => {
  const bar = barAt(event.offsetX, event.offsetY);
  canvas.title = bar ? bar.title + "\n" + time(bar.duration) : "";
});
$("whole").onclick = () => { [from, to] = [0, Math.max(DATA.duration, 0.001)]; draw(); };

// ---- the keyboard

// The next bar of the chosen one's track, or the nearest one of the next track that has any.
function neighbour(key) {
  const tracks = rows.filter((row) => row.bars && row.bars.length), at = tracks.findIndex((row) => row.bars.includes(chosen));
  if (at < 0) return tracks.length ? tracks[0].bars[0] : null;
  const own = tracks[at].bars;
  if (key === "ArrowLeft" || key === "ArrowRight") return own[own.indexOf(chosen) + (key === "ArrowRight" ? 1 : -1)] || null;
  const next = tracks[at + (key === "ArrowDown" ? 1 : -1)], away = (bar) => Math.abs(bar.start - chosen.start);
  return next ? next.bars.reduce((best, bar) => (away(bar) < away(best) ? bar : best)) : null;
}

canvas.addEventListener("keydown", (event) => {
  if (event.key === "+" || event.key === "-") {
    const middle = chosen ? chosen.start + chosen.duration / 2 : (from + to) / 2, factor = event.key === "+" ? 0.7 : 1 / 0.7;
    [from, to] = [middle - (middle - from) * factor, middle + (to - middle) * factor];
    draw();
  } else if (event.key.startsWith("Arrow")) {
    event.preventDefault();
    const bar = neighbour(event.key);
    if (bar) choose(bar, bar.start > to || bar.start + bar.duration < from);
  }
});
$("save").onclick = () => canvas.toBlob((blob) => saveBlob(blob, "tfmini-trace.png"));

function drawAll() { drawLegend(); draw(); }
// A frame of a notebook may get its width after the page has loaded, without a resize of the window.
new ResizeObserver(() => { if ($("scroll").clientWidth !== width) draw(); }).observe($("scroll"));
darkScreen.addEventListener("change", drawAll);
drawAll();
