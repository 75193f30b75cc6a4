"use strict";
// Boxes are tasks and name scopes. What is shown for an op is the outermost closed box around it, or itself.
const open = new Set();
const boxes = new Map();   // box id -> {label, parent}
const byName = new Map(DATA.ops.map((op) => [op.name, op]));
const $ = (id) => document.getElementById(id);
const size = (bytes) => bytes === null ? "? B" : bytes.toLocaleString("en") + " B";

for (const op of DATA.ops) {
  op.path = [op.device];
  boxes.set(op.device, { label: op.device, parent: null });
  const scopes = op.name.split("/").slice(0, -1);
  let id = op.device;
  for (const scope of scopes) {
    const inner = id + "|" + scope;
    boxes.set(inner, { label: scope, parent: id });
    op.path.push(inner);
    id = inner;
  }
  op.id = "op:" + op.name;
}
for (const device of DATA.devices) {
  boxes.set(device, { label: device, parent: null });
  open.add(device);
}

function shownFor(op) {
  for (const box of op.path) if (!open.has(box)) return box;
  return op.id;
}

function elements() {
  const nodes = new Map(), edges = new Map();
  const addBox = (id) => {
    if (nodes.has(id)) return;
    const box = boxes.get(id);
    if (box.parent) addBox(box.parent);
    nodes.set(id, { data: { id, label: box.label, parent: box.parent || undefined }, classes: open.has(id) ? "open" : "closed" });
  };
  DATA.devices.forEach(addBox);
  for (const op of DATA.ops) {
    const id = shownFor(op);
    if (id !== op.id) { addBox(id); continue; }
    const parent = op.path[op.path.length - 1];
    addBox(parent);
    nodes.set(id, { data: { id, label: op.name.split("/").pop() + "\n" + op.op, parent } });
  }
  const addEdge = (source, target, kind, transfer) => {
    if (source === target || !source || !target) return;
    const id = kind + "\t" + source + "\t" + target;
    const edge = edges.get(id) || { data: { id, source, target, transfers: [] }, classes: kind };
    if (transfer !== undefined) edge.data.transfers.push(transfer);
    edges.set(id, edge);
  };
  for (const op of DATA.ops)
    for (const source of op.inputs) {
      const from = byName.get(source);
      if (from && from.device === op.device) addEdge(shownFor(from), shownFor(op), "inner");
    }
  DATA.transfers.forEach((t, i) => {
    const from = byName.get(t.producer);
    for (const user of t.consumers) {
      const to = byName.get(user);
      if (from && to) addEdge(shownFor(from), shownFor(to), t.control ? "wire control" : "wire", i);
    }
  });
  return [...nodes.values(), ...edges.values()];
}

const cy = cytoscape({
  container: $("graph"), wheelSensitivity: 0.3,
  style: [
    { selector: "node", style: { label: "data(label)", "font-size": 9, "text-wrap": "wrap", shape: "round-rectangle", width: 90, height: 26, "text-valign": "center", "background-color": "#cfe2f3" } },
    { selector: ".closed", style: { "background-color": "#9fc5e8", "border-width": 1, "border-style": "double" } },
    { selector: ".open", style: { "text-valign": "top", "background-color": "#fff", "background-opacity": 0.6, "border-width": 1, "border-color": "#999" } },
    { selector: "edge", style: { width: 1, "line-color": "#aaa", "target-arrow-color": "#aaa", "target-arrow-shape": "triangle", "arrow-scale": 0.7, "curve-style": "bezier" } },
    { selector: ".wire", style: { width: 2, "line-color": "#c0392b", "target-arrow-color": "#c0392b" } },
    { selector: ".control", style: { "line-style": "dashed", width: 1 } },
    { selector: ".found", style: { "background-color": "#fd8", "line-color": "#f90", "target-arrow-color": "#f90", width: 5 } },
    { selector: "node.found", style: { "border-width": 3, "border-color": "#f90", width: 90 } },
  ],
});

function draw(fit) {
  cy.batch(() => { cy.elements().remove(); cy.add(elements()); });
  cy.layout({ name: "dagre", rankDir: "LR", nodeSep: 8, rankSep: 40, animate: false, fit }).run();
}

function details(lines) { $("details").textContent = lines.join("\n"); }

function transferLines(t) {
  return [t.tensor, "  is: " + t.role + (t.control ? "" : "  " + t.dtype + " " + JSON.stringify(t.shape) + "  " + size(t.bytes)),
    "  Send " + t.send + "\n    on " + t.src, "  Recv " + t.recv + "\n    on " + t.dst,
    "  computed by " + t.producer, "  for " + t.consumers.join(", "), "  key " + t.key, ""];
}

function reveal(names) {
  for (const name of names) for (const box of (byName.get(name) || { path: [] }).path) open.add(box);
  draw(false);
  cy.elements().removeClass("found");
  const found = cy.collection(names.filter((n) => byName.has(n)).map((n) => cy.getElementById(byName.get(n).id)));
  found.addClass("found");
  if (found.length) cy.fit(found, 120);
}

function showOp(name) {
  const op = byName.get(name);
  reveal([name]);
  details([op.name, op.op + " on " + op.device, "", "because:", ...op.reasons.map((r) => "  " + r)]);
}

function followTransfers(indices) {
  const chosen = indices.map((i) => DATA.transfers[i]);
  if (!chosen.length) return;
  reveal([...new Set(chosen.flatMap((t) => [t.producer, ...t.consumers]))]);
  cy.edges(".wire").forEach((edge) => { if (edge.data("transfers").some((i) => indices.includes(i))) edge.addClass("found"); });
  details(chosen.flatMap(transferLines));
}

cy.on("tap", "node", (event) => {
  const id = event.target.id();
  if (id.startsWith("op:")) {
    const op = byName.get(id.slice(3));
    details([op.name, op.op + " on " + op.device, "", "because:", ...op.reasons.map((r) => "  " + r)]);
  } else {
    const inside = DATA.ops.filter((op) => op.path.includes(id));
    details([id, inside.length + " ops (double-click opens and closes)"]);
  }
});
cy.on("dbltap", "node", (event) => {
  const id = event.target.id();
  if (event.target !== event.cy && boxes.has(id)) { open.has(id) ? open.delete(id) : open.add(id); draw(false); }
});
cy.on("tap", "edge.wire", (event) => followTransfers(event.target.data("transfers")));

let now = -1;
const rows = DATA.messages.map((m, i) => {
  const row = document.createElement("div");
  row.className = "row";
  row.textContent = (i + 1) + ". " + m.src + " → " + m.dst + ": " + m.text + (m.bytes ? " (" + size(m.bytes) + ")" : "");
  row.onclick = () => step(i);
  $("messages").append(row);
  return row;
});
function step(i) {
  if (i < 0 || i >= rows.length) return;
  now = i;
  rows.forEach((row, j) => row.classList.toggle("now", i === j));
  rows[i].scrollIntoView({ block: "nearest" });
  details([rows[i].textContent]);
  followTransfers(DATA.messages[i].transfers);
}
$("next").onclick = () => step(now + 1);
$("back").onclick = () => step(now - 1);
$("collapse").onclick = () => { open.clear(); DATA.devices.forEach((d) => open.add(d)); draw(true); };
for (const op of DATA.ops) { const option = document.createElement("option"); option.value = op.name; $("names").append(option); }
$("search").onchange = () => {
  const text = $("search").value;
  const op = byName.get(text) || DATA.ops.find((o) => o.name.toLowerCase().includes(text.toLowerCase()));
  if (op) showOp(op.name); else details(["no op called " + text]);
};
draw(true);
