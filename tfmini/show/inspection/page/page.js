// The user's actions: search, open and close boxes, follow a Send, step through the messages of a step.
function line(text, action, kind) {
  const row = document.createElement(kind || "div");
  row.textContent = text;
  if (action) { row.className = "row"; asButton(row, action); }
  return row;
}

function details(...rows) { $("details").replaceChildren(...rows.map((row) => (typeof row === "string" ? line(row) : row))); }

const shape = (t) => t.dtype + (t.shape ? "[" + t.shape.map((d) => (d === null ? "?" : d)).join(",") + "]" : "[?]");
const what = (t) => t.role + (t.control ? "" : ", " + shape(t) + ", " + size(t.bytes));
const shortName = (device) => DATA.short[DATA.devices.indexOf(device)] || device;

function showOp(op) {
  mark(reveal([op.node]));
  tellOp(op);
}

function tellOp(op, more = []) {
  details(
    line(op.name, null, "h2"), op.type + " on " + DATA.devices[op.device],
    line("because", null, "h3"), ...op.reasons,
    ...(op.sends.length ? [line("Send (click to follow it to its Recv)", null, "h3")] : []),
    ...op.sends.map((t) => line("→ " + shortName(t.dst) + "  " + t.tensor + ": " + what(t), () => follow([t], t.consumers))),
    ...(op.recvs.length ? [line("Recv (click to go back to its Send)", null, "h3")] : []),
    ...op.recvs.map((t) => line("← " + shortName(t.src) + "  " + t.tensor + ": " + what(t), () => follow([t], [t.producer]))),
    ...more,
  );
}

function transferRows(t) {
  return [
    line(t.tensor, null, "h2"), what(t),
    line("Send " + t.send + " on " + t.src + (t.producer ? ", computed by " + t.producer : ""), () => follow([t], [t.producer])),
    line("Recv " + t.recv + " on " + t.dst + (t.consumers.length ? ", for " + t.consumers.join(", ") : ""), () => follow([t], t.consumers)),
    line("key " + t.key, null, "div"),
  ];
}

// Marks transfers from Send to Recv; scrolls to the ops `towards`, by default to all of them.
function follow(transfers, towards) {
  const all = [...new Set(transfers.flatMap((t) => endsOf(t).flat()))];
  const ends = towards ? all.filter((node) => node.op && towards.includes(node.op.name)) : all;
  all.forEach(openPath);
  const found = reveal(ends.length ? ends : all);
  markWires(transfers, found);
  details(...transfers.flatMap(transferRows));
}

function markWires(transfers, more) {
  const indices = new Set(transfers.map((t) => t.index));
  const wires = cy.edges(".wire").filter((edge) => edge.data("transfers").some((i) => indices.has(i)));
  mark(more.union(wires).union(wires.connectedNodes()));
}

function showBox(node) {
  if (isTask(node) && !node.open) {
    showGroup({ label: node.label, devices: numbersOf(node) });
    return;
  }
  details(line(node.id.replace(/^task:/, ""), null, "h2"), node.count + " ops" + (node.children.length ? "; a double click " + (node.open ? "closes" : "opens") + " it" : ""));
}

function toggle(node) {
  setOpen(node, !node.open);
  draw(node);
  if (!node.devices) showBox(node);
  else fitAll();
}

function openTask(device) {
  if (device.fold) setOpen(device.fold, true);
  setOpen(device, true);
  reveal([device]);
  showBox(device);
}

// Shows the heat map, the picture of tasks, or all ops.
const HINTS = {
  heat: "", tasks: "A click on a box or a line tells more; a double click on a box opens it among all ops. Ctrl and the wheel zoom.",
  ops: "A double click opens or closes a box. Lines between tasks have the colour of the sender; their width says the bytes. Dashed: order only.",
};
function show(view) {
  $("main").className = view;
  $("hint").textContent = HINTS[view];
  if (view === "heat") drawHeat();
  if (view === "tasks") drawTasks();
}
$("toHeat").onclick = () => show("heat");
$("toTasks").onclick = () => show("tasks");
$("toOps").onclick = () => { show("ops"); fitAll(); };
window.addEventListener("resize", () => show($("main").className));
darkScreen.addEventListener("change", () => { cy.style(looks()); show($("main").className); });

// The browser detects double clicks by the user's settings.
cy.on("tap", "node", (event) => {
  const node = nodes.get(event.target.id());
  if (node.op) showOp(node.op);
  else if (event.originalEvent.detail === 2) toggle(node);
  else { mark(cy.collection()); showBox(node); }
});
cy.on("tap", "edge.wire", (event) => follow(event.target.data("transfers").map((i) => DATA.transfers[i])));

// The keyboard: the chosen box is the marked one.
const AHEAD = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
function nearest(from, [dx, dy]) {
  const far = (node) => {
    const x = node.position("x") - from.x, y = node.position("y") - from.y, ahead = x * dx + y * dy, aside = Math.abs(x * dy) + Math.abs(y * dx);
    return ahead > 1 ? ahead + 2 * aside : Infinity;
  };
  const found = cy.nodes().toArray().map((node) => [far(node), node]).sort((a, b) => a[0] - b[0])[0];
  return found && found[0] < Infinity ? found[1] : null;
}
$("graph").addEventListener("keydown", (event) => {
  const chosen = cy.nodes(".found").first(), node = chosen.empty() ? null : nodes.get(chosen.id());
  if (AHEAD[event.key]) {
    const next = chosen.empty() ? cy.nodes().first() : nearest(chosen.position(), AHEAD[event.key]);
    if (next) { mark(next); tellNode(nodes.get(next.id())); }
  } else if (event.key === "Enter" && node) tellNode(node);
  else if (event.key === " " && node && !node.op) toggle(node);
  else return;
  event.preventDefault();
  event.stopPropagation();
});
const tellNode = (node) => (node.op ? tellOp(node.op) : showBox(node));

// ---- messages

let now = -1;
const rows = DATA.messages.map((m, i) => {
  const told = [m.bytes !== 0 && m.transfers.length ? size(m.bytes) : "", m.count > 1 ? "in " + m.count + " messages" : ""].filter(Boolean).join(" ");
  const row = line((i + 1) + ". " + m.from + " → " + m.to + ": " + m.text + (told && " (" + told + ")"), () => step(i));
  row.tabIndex = i ? -1 : 0;  // one stop of the tab key; arrow keys go through them
  $("messages").append(row);
  return row;
});

function step(i) {
  if (i < 0 || i >= rows.length) return;
  if ($("main").className !== "ops") show("tasks");
  now = i;
  rows.forEach((row, j) => { row.classList.toggle("now", i === j); row.tabIndex = i === j ? 0 : -1; });
  if ($("messages").contains(document.activeElement)) rows[i].focus();
  rows[i].scrollIntoView({ block: "nearest" });
  const message = DATA.messages[i], transfers = message.transfers.map((j) => DATA.transfers[j]);
  // Boxes are not opened, so that the picture does not move between messages; a click on a row follows the transfer.
  const ends = devices.filter((device) => [message.from, message.to].includes(device.label)).map(shownFor);
  markPicture(message, transfers);
  if (transfers.length) markWires(transfers, cy.collection());
  else mark(ends.reduce((all, device) => all.union(cy.getElementById(device.id)), cy.collection()));
  details(
    line("message " + (i + 1) + " of " + rows.length, null, "h2"), rows[i].textContent,
    ...transfers.map((t) => line(t.tensor + ": " + what(t), () => follow([t]))),
  );
}
$("next").onclick = () => step(now + 1);
$("back").onclick = () => step(now - 1);
document.addEventListener("keydown", (event) => {
  if (event.target === $("search")) return;
  const inList = $("messages").contains(event.target);
  if (event.key === "ArrowRight" || (inList && event.key === "ArrowDown")) step(now + 1);
  else if (event.key === "ArrowLeft" || (inList && event.key === "ArrowUp")) step(now - 1);
  else return;
  if (inList) event.preventDefault();
});

// ---- search

function matches() {
  const text = $("search").value.toLowerCase();
  if (!text) return [];
  const found = ops.filter((op) => op.name.toLowerCase().includes(text) || op.type.toLowerCase() === text);
  return found.sort((a, b) => (b.name.toLowerCase() === text) - (a.name.toLowerCase() === text) || a.name.length - b.name.length);
}
$("search").oninput = () => {
  const found = matches();
  $("matches").replaceChildren(...found.slice(0, 30).map((op) => line(op.name, () => showOp(op))));
  if (found.length) $("matches").firstChild.classList.add("first");
  if (found.length > 30) $("matches").append(line("… " + (found.length - 30) + " more"));
};
$("search").onkeydown = (event) => {
  if (event.key !== "Enter") return;
  const found = matches();
  if (found.length) showOp(found[0]); else details("no op called " + $("search").value);
  $("matches").replaceChildren();
};

$("collapse").onclick = () => { closeAll(); draw(); fitAll(); if ($("main").className !== "heat") { isUnfolded = false; show($("main").className); } };
$("fit").onclick = () => { fitAll(); zoom = 0; if ($("main").className === "tasks") drawTasks(); };
openSome(24);
draw();
fitAll();
show(busy.length > SOME_TASKS && DATA.links.length ? "heat" : "tasks");
const alarms = Object.keys(DATA.overloaded).length;
details(
  ...DATA.sentences.map((text, i) => { const row = line(text); row.className = i < Math.min(alarms, 3) ? "alarm" : ""; return row; }),
  DATA.about, ...DATA.warnings.map((text) => line("warning: " + text)),
  ...(devices.length > FEW_TASKS ? [line("busiest links", null, "h3"), ...linksOf(() => true).slice(0, 8).map(linkRow)] : []),
);
