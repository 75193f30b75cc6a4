// The connection to the server: each message changes what is shown. The browser connects again by itself.
const updateTimes = [];   // milliseconds of the last updates, for people who measure
let lastMessage = null;

function update(message) {
  const began = performance.now();
  $("problem").hidden = !message.problem;
  $("problem").textContent = message.problem ? "No newer numbers: " + message.problem : "";
  if (message.boxes) {
    lastMessage = message;
    $("target").textContent = message.target;
    chartOrder = message.charts.map((chart) => chart.id);
    showPicture($("graph"), message.picture);
    drawCharts(message.charts, message.time, message.colours);
    showWhy(message.why);
    showWaits(message);
    showLedgers(message.ledgers);
    for (const event of message.events) showEvent(event);
    showHeadline(message);
    fillPanel();
  }
  updateTimes.push(performance.now() - began);
  if (updateTimes.length > 600) updateTimes.shift();
}

function showHeadline(message) {
  const silent = message.boxes.filter((box) => box.state === "silent").map((box) => box.id);
  const parts = [...message.why.headline];
  if (message.broken.length) parts.push(message.broken[0].text + (message.broken.length > 1 ? " (and " + (message.broken.length - 1) + " more)" : ""));
  if (silent.length) parts.push("no answer: " + silent.join(", "));
  if (!parts.length && message.why.bottleneck) parts.push(message.why.bottleneck);
  else if (!parts.length && message.busiest) parts.push("busiest link: " + message.busiest.from + " ↔ " + message.busiest.to + ", " + scaled(message.busiest.rate, "B/s"));
  $("headline").textContent = parts.join("; ");
  $("headline").className = silent.length || message.broken.length || message.why.headline.length ? "bad" : "";
}

function showWhy(why) {
  $("why-title").hidden = !why.blocks.length;
  $("why").replaceChildren(...why.blocks.map((block) => {
    const made = element("div", null, "reason");
    made.append(element("b", block.title), ...block.lines.map((text, i) => element("div", (i ? "← " : "") + text, "hop")));
    return made;
  }));
}

function showWaits(message) {
  const long = message.waits.filter((wait) => wait.kind !== "computes" && wait.since >= 1);
  $("waits-note").textContent = long.length ? "" : "none is longer than a second";
  $("waits").replaceChildren(...long.map((wait) => row(wait.short + " " + wait.words, () => openTask(wait.task))));
}

function showLedgers(ledgers) {
  $("ledgers-title").hidden = !ledgers.length;
  $("ledgers").replaceChildren(...ledgers.map((ledger) => {
    const box = element("div"), who = ledger.contributed.length ? " from " + ledger.contributed.join(", ") : "";
    box.append(element("div", ledger.name + " on " + ledger.task + ": " + ledger.count + " of " + (ledger.required || "?") + who + "; step " + ledger.step));
    if (ledger.tasks.length) box.append(table(["", "taken", "dropped"], ledger.tasks.map((task) => [task.task, String(task.accepted), String(task.dropped)])));
    return box;
  }));
}

function showEvent(event) {
  const line = row();
  line.append(element("span", clockTime(event.time) + " ", "quiet"), element("span", event.kind, "kind " + event.kind), " " + event.text);
  $("events").prepend(line);
  while ($("events").childElementCount > 200) $("events").lastChild.remove();
}

function connect() {
  const source = new EventSource(address("updates"));
  const say = (text, isLive) => { $("live").textContent = text; $("live").classList.toggle("off", !isLive); };
  source.onopen = () => { say("live", true); $("events").replaceChildren(); };
  source.onmessage = (event) => update(JSON.parse(event.data));
  source.onerror = () => {
    say("connects again", false);
    // The browser gives up when the answer is an error, such as 503 of a server that begins.
    if (source.readyState === EventSource.CLOSED) { source.close(); setTimeout(connect, 2000); }
  };
}

$("graph").onclick = (event) => {
  const found = event.target.closest("[data-id]"), box = found && lastMessage.boxes.find((each) => each.id === found.dataset.id);
  if (!box) return;
  if (box.tasks.length === 1) openTask(box.tasks[0].name); else openGroup(box.id, box.tasks);
};
$("save").onclick = async () => saveBlob(await pngOf($("graph").firstElementChild), "tfmini.png");
document.addEventListener("keydown", (event) => { if (event.key === "Escape") closePanel(); });
connect();
