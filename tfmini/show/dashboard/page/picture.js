// The tasks as boxes and the links between them, as the inspector draws them. Equal tasks are one box.
// Links that carry little more than heartbeats (B/s), or less than a hundredth of the busiest, have no label.
const WIDTH = 186, GAP = 46, LABELS = 10, QUIET = 2000;
// cytoscape adds a style sheet where there is no element of this id; the page's policy would refuse it.
document.querySelector("style").id = "__________cytoscape_stylesheet";
const cy = cytoscape({
  container: $("graph"), wheelSensitivity: 0.3, minZoom: 0.1, maxZoom: 3, boxSelectionEnabled: false, autoungrabify: true,
  style: [
    { selector: "node", style: { label: "data(label)", "font-size": 12, "text-wrap": "wrap", shape: "round-rectangle", width: WIDTH, height: "data(h)", "text-valign": "center", "background-color": "#dcebf7", "border-width": 2, "border-color": "#6b9bc3" } },
    { selector: ".ps", style: { "background-color": "#e6e3f5", "border-color": "#8e7cc3" } },
    { selector: ".many", style: { "border-style": "double", "border-width": 5 } },
    { selector: ".waits", style: { "background-color": "#fff1c9", "border-color": "#d69e00" } },
    { selector: ".stuck", style: { "background-color": "#ffe0c2", "border-color": "#d35400" } },
    { selector: ".silent", style: { "background-color": "#f6c9c4", "border-color": "#b3261e", color: "#7a1710", "border-style": "dashed" } },
    { selector: ".bottleneck", style: { "border-width": 6, "border-color": "#e07b00" } },
    { selector: ".culprit", style: { "border-width": 6, "border-color": "#b3261e", "background-color": "#fbe0dc" } },
    { selector: "edge", style: { width: "data(w)", "source-label": "data(label)", "source-text-offset": "data(at)", "font-size": 11, color: "#444", "line-color": "#a9b7c6", "curve-style": "straight", "text-background-color": "#fafafa", "text-background-opacity": 0.9 } },
    { selector: "edge.broken", style: { "line-style": "dashed", "line-color": "#b3261e", width: 3 } },
    { selector: "edge.busiest", style: { "line-color": "#c0392b", color: "#a02b1d", "font-weight": "bold", "z-index": 9 } },
  ],
});

let shownBoxes = "";

function drawPicture(message) {
  const boxes = message.boxes, key = boxes.map((box) => box.id).join("\n");
  cy.batch(() => {
    if (key !== shownBoxes) {
      const wanted = new Set(boxes.map((box) => box.id));
      cy.nodes().filter((node) => !wanted.has(node.id())).remove();
      cy.add(boxes.filter((box) => cy.getElementById(box.id).empty()).map((box) => ({ group: "nodes", data: { id: box.id, h: 60, label: "" } })));
    }
    for (const box of boxes) {
      const words = { ok: "", waits: "waits", stuck: "all its threads are busy", silent: "" }[box.state] || "";
      const doing = box.doing.length ? [box.kind, ...box.doing] : [[box.kind, words].filter(Boolean).join(", ")];
      const lines = [box.id, ...doing, ...box.lines].filter(Boolean);
      const node = cy.getElementById(box.id);
      node.data({ label: lines.join("\n"), h: 16 + 15 * lines.length, tasks: box.tasks });
      node.classes([box.mark, box.job === "ps" ? "ps" : "", box.tasks.length > 1 ? "many" : "", box.state].join(" "));
    }
    drawLinks(message);
    if (key !== shownBoxes) place(boxes);
  });
  if (key !== shownBoxes) cy.fit(undefined, 24);
  shownBoxes = key;
}

// One line between two boxes, for both directions; its width says the bytes.
function drawLinks(message) {
  const lines = new Map();
  for (const link of message.links) {
    if (link.from === link.to && !link.rate) continue;
    const ends = [link.from, link.to].sort(), id = ends.join("\t");
    const line = lines.get(id) || { id, source: ends[0], target: ends[1], rate: 0 };
    line.rate += link.rate;
    lines.set(id, line);
  }
  const boxOf = new Map(message.boxes.flatMap((box) => box.tasks.map((task) => [task.short, box.id])));
  const busiestLine = message.busiest ? [boxOf.get(message.busiest.from), boxOf.get(message.busiest.to)].sort().join("\t") : "";
  const broken = new Map(message.broken.map((link) => [[link.from, link.to].sort().join("\t"), link]));
  for (const id of broken.keys()) if (!lines.has(id)) lines.set(id, { id, source: id.split("\t")[0], target: id.split("\t")[1], rate: 0 });
  cy.edges().filter((edge) => !lines.has(edge.id())).remove();
  const sorted = [...lines.values()].sort((a, b) => b.rate - a.rate), most = sorted.length ? sorted[0].rate : 0;
  sorted.forEach((line, i) => {
    const data = { ...line, w: 1 + 7 * Math.sqrt(line.rate / Math.max(most, QUIET)), at: 34 + 20 * (i % 3), label: i < LABELS && line.rate > Math.max(most / 100, QUIET) ? scaled(line.rate, "B/s") : "" };
    const edge = cy.getElementById(line.id);
    if (edge.empty()) cy.add({ group: "edges", data }); else edge.data(data);
    cy.getElementById(line.id).toggleClass("broken", broken.has(line.id));
    cy.getElementById(line.id).toggleClass("busiest", line.id === busiestLine);
  });
}

// Jobs below each other, ps first; the boxes of a job side by side, in rows that make the picture as wide as its place.
function place(boxes) {
  const jobs = new Map();
  boxes.forEach((box) => jobs.set(box.job, [...(jobs.get(box.job) || []), box]));
  const columns = Math.max(4, Math.ceil(Math.sqrt(boxes.length * 1.6)));
  let top = 0;
  for (const job of [...jobs.keys()].sort((a, b) => (b === "ps") - (a === "ps"))) {
    const own = jobs.get(job);
    for (let i = 0; i < own.length; i += columns) {
      const line = own.slice(i, i + columns);
      line.forEach((box, j) => cy.getElementById(box.id).position({ x: (j - (line.length - 1) / 2) * (WIDTH + GAP), y: top }));
      top += 110;
    }
    top += 60;
  }
}

cy.on("tap", "node", (event) => {
  const tasks = event.target.data("tasks");
  if (tasks.length === 1) openTask(tasks[0].name); else openGroup(event.target.id(), tasks);
});
new ResizeObserver(() => { cy.resize(); cy.fit(undefined, 24); }).observe($("graph"));
