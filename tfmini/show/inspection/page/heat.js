// The heat map: who sends how much to whom. A row per sender, a column per receiver; bars say the totals.
const heat = (share) => share ** 0.65;  // so that a busy row is seen beside one much busier cell
const MOST_ROWS = 120;  // of more tasks, those that are alike share a row

const jobRank = (i) => (DATA.short[i].startsWith("ps/") ? 0 : 1);
const busy = devices.map((_, i) => i).filter((i) => !loads[i].idle).sort((a, b) => jobRank(a) - jobRank(b) || a - b);
const groups = busy.length <= MOST_ROWS
  ? busy.map((i) => ({ label: DATA.short[i], devices: [i] }))
  : DATA.folds.filter((fold) => fold.devices.some((i) => !loads[i].idle));
const groupOf = new Map(groups.flatMap((group, at) => group.devices.map((i) => [i, at])));
const cells = new Map();
for (const [src, dst, bytes] of DATA.links) {
  const key = groupOf.get(src) + "," + groupOf.get(dst);
  cells.set(key, (cells.get(key) || 0) + bytes);
}
const sumOf = (group, key) => group.devices.reduce((sum, i) => sum + loads[i][key], 0);
const isOver = (group) => group.devices.some((i) => DATA.overloaded[i]);

function svgNode(kind, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function tip(made, text) { made.append(svgNode("title", {}, text)); return made; }

function drawHeat() {
  const box = $("heat").getBoundingClientRect(), count = Math.max(1, groups.length), bar = count > 40 ? 50 : 80;
  const left = 14 + 7 * Math.max(9, ...groups.map((group) => group.label.length)), top = left - 10;
  const step = Math.max(4, Math.min(64, (box.width - left - bar - 80) / count, (box.height - top - bar - 100) / count));
  const side = step * count, across = count > 40 ? Math.max(bar, Math.min(180, box.width - left - side - 90)) : bar;
  const width = Math.max(left + side + across + 70, left + 520), height = top + side + bar + 85;
  const svg = svgNode("svg", { class: "heatmap", width, height, viewBox: "0 0 " + width + " " + height });
  const most = Math.max(1, ...cells.values());
  svg.append(svgNode("text", { x: 8, y: 14, class: "axis" }, "receiver →"), svgNode("text", { x: 8, y: top - 6, class: "axis" }, "sender ↓"));
  svg.append(svgNode("rect", { x: left, y: top, width: side, height: side, class: "square" }));
  drawCells(svg, left, top, step, most);
  drawSides(svg, left, top, step, side, bar, across);
  drawScale(svg, left, top + side + bar + 60, most);
  $("heat").replaceChildren(svg);
}

function drawCells(svg, left, top, step, most) {
  const gap = step > 12 ? 1 : 0.5;
  let hottest = null;
  for (const [key, bytes] of cells) {
    const [row, column] = key.split(",").map(Number), share = bytes / most;
    const at = { x: left + column * step + gap, y: top + row * step + gap };
    const cell = svgNode("rect", { ...at, width: step - 2 * gap, height: step - 2 * gap, fill: colour(heat(share)), class: "cell" });
    cell.dataset.key = key;
    cell.onclick = () => showCell(row, column);
    svg.append(tip(cell, groups[row].label + " → " + groups[column].label + ": " + size(bytes)));
    const text = human(bytes);
    if (bytes && step > 6.2 * text.length + 4)
      svg.append(svgNode("text", { x: left + (column + 0.5) * step, y: top + (row + 0.5) * step + 4, class: "number", style: "fill:" + inkOn(heat(share)) }, text));
    if (bytes === most && hottest === null) hottest = { row, column };
  }
  if (hottest === null) return;
  const wide = Math.max(step, 14), shift = (step - wide) / 2;  // a small cell stays visible inside the ring
  const ring = { x: left + hottest.column * step + shift, y: top + hottest.row * step + shift, width: wide, height: wide };
  svg.append(svgNode("rect", { ...ring, fill: "none", class: "ring", "stroke-width": 2.5, "pointer-events": "none", id: "hottest" }));
  if (step >= 14) return;
  const text = groups[hottest.row].label + " → " + groups[hottest.column].label;
  svg.append(svgNode("text", { x: ring.x + wide + 5, y: ring.y + wide + 8, class: "callout" }, text));
}

// Names, bars and their numbers. Where rows are lower than letters only some have room: overloaded tasks first, the busiest
// of these before the others.
function drawSides(svg, left, top, step, side, bar, across) {
  const near = Math.ceil(12 / step), traffic = (i) => (isOver(groups[i]) ? sumOf(groups[i], "sends") + sumOf(groups[i], "receives") : 0);
  const named = new Set();
  for (const i of groups.map((_, i) => i).sort((a, b) => traffic(b) - traffic(a) || a - b))
    if (![...named].some((other) => Math.abs(other - i) < near)) named.add(i);
  const mostOut = Math.max(1, ...groups.map((g) => sumOf(g, "sends"))), mostIn = Math.max(1, ...groups.map((g) => sumOf(g, "receives")));
  groups.forEach((group, i) => {
    const middle = (i + 0.5) * step, kind = "name" + (isOver(group) ? " over" : "");
    const out = sumOf(group, "sends"), into = sumOf(group, "receives"), thick = Math.max(1, step - 2);
    if (named.has(i)) {
      const upright = { transform: "translate(" + (left + middle + 4) + "," + (top - 6) + ") rotate(-90)", class: kind };
      const names = [svgNode("text", { x: left - 6, y: top + middle + 4, "text-anchor": "end", class: kind }, group.label), svgNode("text", upright, group.label)];
      names[1].onclick = () => showGroup(group);
      svg.append(asButton(names[0], () => showGroup(group)), names[1]);
    }
    const over = isOver(group) ? "bar much" : "bar", far = left + side + 6 + (across * out) / mostOut, low = top + side + 6 + (bar * into) / mostIn;
    if (named.has(i)) {  // numbers
      svg.append(svgNode("text", { x: far + 4, y: top + middle + 4, class: "sum" }, human(out)));
      svg.append(svgNode("text", { transform: "translate(" + (left + middle + 4) + "," + (low + 4) + ") rotate(-90)", "text-anchor": "end", class: "sum" }, human(into)));
    }
    svg.append(tip(svgNode("rect", { x: left + side + 6, y: top + middle - thick / 2, width: (across * out) / mostOut, height: thick, class: over }), group.label + " sends " + size(out)));
    svg.append(tip(svgNode("rect", { x: left + middle - thick / 2, y: top + side + 6, width: thick, height: (bar * into) / mostIn, class: over }), group.label + " receives " + size(into)));
  });
  svg.append(svgNode("text", { x: left + side + 6, y: top - 6, class: "axis" }, "sends"), svgNode("text", { x: left - 6, y: top + side + 18, class: "axis", "text-anchor": "end" }, "receives"));
  let job = groups.length ? groups[0].label.split("/")[0] : "";
  groups.forEach((group, i) => {  // a line between jobs
    if (group.label.split("/")[0] === job) return;
    job = group.label.split("/")[0];
    const at = i * step;
    svg.append(svgNode("line", { x1: left, x2: left + side, y1: top + at, y2: top + at, class: "between" }), svgNode("line", { y1: top, y2: top + side, x1: left + at, x2: left + at, class: "between" }));
  });
}

function drawScale(svg, left, y, most) {
  for (let i = 0; i < 40; i += 1) svg.append(svgNode("rect", { x: left + 4 * i, y, width: 4, height: 10, fill: colour(heat((i + 1) / 40)) }));
  svg.append(svgNode("text", { x: left + 168, y: y + 9, class: "axis" }, "up to " + human(most) + " in a step. A click on a cell or a name shows its details."));
}

const linksOf = (test) => DATA.links.filter(([src, dst]) => test(src, dst)).sort((a, b) => b[2] - a[2]);
const linkRow = ([src, dst, bytes, beyond]) => line(DATA.short[src] + " → " + DATA.short[dst] + ": " + size(bytes) + beyond, () => showLink(src, dst));

function showCell(row, column) {
  const found = linksOf((src, dst) => groupOf.get(src) === row && groupOf.get(dst) === column);
  if (found.length === 1) showLink(found[0][0], found[0][1]);
  else details(line(groups[row].label + " → " + groups[column].label, null, "h2"), ...found.slice(0, 40).map(linkRow));
}

// The transfers of one link; a click on one follows it in the graph.
function showLink(src, dst) {
  const [from, to] = [DATA.devices[src], DATA.devices[dst]];
  const found = DATA.transfers.filter((t) => t.src === from && t.dst === to).sort((a, b) => (b.bytes || 0) - (a.bytes || 0));
  const link = DATA.links.find(([a, b]) => a === src && b === dst);
  details(
    line(DATA.short[src] + " → " + DATA.short[dst] + ": " + size(link[2]) + link[3], null, "h2"),
    line(found.length + " transfers (click to follow one from its Send to its Recv)", null, "h3"),
    ...found.slice(0, 60).map((t) => line(t.tensor + ": " + what(t), () => follow([t]))),
    ...(found.length > 60 ? ["… " + (found.length - 60) + " more"] : []),
  );
}

function showGroup(group) {
  const inside = (i) => group.devices.includes(i);
  const text = (i) => DATA.short[i] + ": " + loads[i].ops.toLocaleString("en") + " ops, holds " + size(loads[i].state) + ", sends " + size(loads[i].sends) + loads[i].sendsMore + ", receives " + size(loads[i].receives) + loads[i].receivesMore;
  details(
    line(group.label, null, "h2"),
    ...group.devices.filter((i) => DATA.overloaded[i]).map((i) => line(DATA.short[i] + " has " + DATA.overloaded[i].toFixed(1) + " times the mean traffic of its job.", null, "b")),
    line("a click opens the task in the graph", null, "h3"),
    ...group.devices.slice(0, 40).map((i) => line(text(i), () => openTask(devices[i]))),
    line("busiest links", null, "h3"),
    ...linksOf((src, dst) => inside(src) || inside(dst)).slice(0, 12).map(linkRow),
  );
}
