
"use strict";
// All values come from clients and origins: they are inserted as text, never as markup.
const $ = (id) => document.getElementById(id);
const KEY = "lacquer-token";
const HISTORY = 120;
const LINES = 500;
const state = { token: "", stream: null, log: null, paused: false, history: [], totals: null, heat: [], limits: [] };

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
function count(value) { return value == null ? "–" : number.format(value); }
function percent(value) { return value == null ? "–" : (100 * value).toFixed(1) + " %"; }
function bytes(value) {
  if (value == null) return "–";
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) { value /= 1000; at += 1; }
  return number.format(value) + " " + units[at];
}
function duration(seconds) {
  if (seconds == null) return "–";
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return number.format(seconds * 1e6) + " µs";
  if (seconds < 1) return number.format(seconds * 1e3) + " ms";
  if (seconds < 120) return number.format(seconds) + " s";
  if (seconds < 7200) return number.format(seconds / 60) + " min";
  return seconds < 172800 ? number.format(seconds / 3600) + " h" : number.format(seconds / 86400) + " days";
}
function clock(seconds) { return new Date(seconds * 1000).toISOString().slice(11, 23); }

function element(name, text, kind) {
  const made = document.createElement(name);
  if (text != null) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}
function button(text, label, action) {
  const made = element("button", text, "small");
  made.type = "button";
  made.setAttribute("aria-label", label);
  made.addEventListener("click", action);
  return made;
}
// Fills a table. A cell is a text, an element, or a pair of text and class.
function fill(id, rows, none) {
  const body = $(id).tBodies[0];
  const made = rows.map((cells) => {
    const row = element("tr");
    for (const cell of cells) {
      if (cell instanceof Node) { const place = element("td", null, "acts"); place.append(cell); row.append(place); }
      else if (Array.isArray(cell)) row.append(element("td", cell[0], cell[1]));
      else row.append(element("td", cell));
    }
    return row;
  });
  if (made.length === 0) {
    const row = element("tr");
    const cell = element("td", none, "none");
    cell.colSpan = $(id).tHead.rows[0].cells.length;
    row.append(cell);
    made.push(row);
  }
  // A table that somebody uses by keyboard is not replaced under the focus.
  if (!body.contains(document.activeElement)) body.replaceChildren(...made);
}

async function call(method, path, body) {
  const headers = { Authorization: "Bearer " + state.token };
  if (body) headers["Content-Type"] = "application/json";
  const response = await fetch(path, { method, headers, body: body && JSON.stringify(body), cache: "no-store" });
  const text = await response.text();
  let json = {};
  try { json = JSON.parse(text); } catch { json = { error: text }; }
  if (!response.ok) throw new Error(json.error || "status " + response.status);
  return json;
}

// Reads a stream of events until it ends or is aborted.
async function listen(path, abort, each) {
  const headers = { Authorization: "Bearer " + state.token };
  const response = await fetch(path, { headers, signal: abort.signal, cache: "no-store" });
  if (!response.ok) { const failed = new Error("status " + response.status); failed.status = response.status; throw failed; }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const text of events) {
      const fields = Object.fromEntries(text.split("\n").map((line) => { const at = line.indexOf(": "); return [line.slice(0, at), line.slice(at + 2)]; }));
      if (fields.event && fields.data) each(fields.event, JSON.parse(fields.data));
    }
  }
}

function show(text, bad) { const place = $("status"); if (place.textContent !== text) place.textContent = text; place.className = bad ? "bad" : ""; }

async function follow() {
  for (;;) {
    const abort = new AbortController();
    state.stream = abort;
    try {
      await listen("/api/v1/events", abort, (name, data) => {
        if (name === "snapshot") snapshot(data);
        if (name === "lists") lists(data);
      });
      show("The connection has ended", true);
    } catch (error) {
      if (abort.signal.aborted) return;
      if (error.status === 401) { logout("The token is wrong."); return; }
      show("No connection: " + error.message, true);
    }
    await new Promise((done) => setTimeout(done, 2000));
  }
}

function snapshot(data) {
  const ten = data.traffic.last_10_seconds;
  const last = state.history.at(-1);
  const start = data.traffic.since_start;
  const point = { time: data.time, requests: start.requests, hits: start.hits, bytes: start.bytes_out };
  if (last && point.requests < last.requests) state.history = [];
  state.history.push(point);
  state.history = state.history.slice(-HISTORY - 1);
  heat(data.latency.totals);
  if (state.paused) return;
  show(data.status === "running" ? "Running" : "Waiting: " + data.reason, data.status !== "running");
  $("daemon").textContent = data.daemon;
  $("t-requests").textContent = count(ten.requests_per_second);
  $("t-ratio").textContent = percent(ten.hit_ratio);
  $("t-ratio-minute").textContent = percent(data.traffic.last_minute.hit_ratio);
  $("t-out").textContent = bytes(ten.bytes_out_per_second);
  $("t-fetches").textContent = count(ten.seconds > 0 ? ten.fetches / ten.seconds : null);
  $("t-open").textContent = count(data.connections.open);
  $("t-waiting").textContent = count(data.connections.waiting);
  $("t-uptime").textContent = duration(data.uptime);
  latency(data.latency);
  origins(data.origins);
  storage(data.storage);
  const busiest = (url) => [[url.url, "long"], [count(url.requests), "number"], [percent(url.hit_ratio), "number"], actions(url.url)];
  fill("busiest", data.busiest.slice(0, 15).map(busiest), "No requests");
  fill("missed", data.missed.slice(0, 15).map((url) => [[url.url, "long"], [count(url.requests), "number"], [duration(url.mean_seconds), "number"], actions(url.url)]), "No misses");
  fill("slowest", data.slowest.slice(0, 15).map((url) => [[url.url, "long"], [duration(url.seconds), "number"], [url.status, "number"], actions(url.url)]), "No requests");
  draw();
}

function actions(url) {
  const place = element("span");
  place.append(button("why", "Why: " + url, () => ask(url)), " ", button("purge", "Purge " + url, () => purge("url", url, false)));
  return place;
}

function latency(data) {
  const row = (name, all) => [name, [count(all.count), "number"], [duration(all.p50), "number"], [duration(all.p95), "number"], [duration(all.p99), "number"], [duration(all.max), "number"]];
  fill("latency", [row("hits", data.hits), row("misses and passes", data.misses)], "");
}

function origins(all) {
  fill("origin-table", all.map((origin) => {
    const health = origin.health === "sick" ? ["✖ sick", "bad"] : origin.health === "healthy" ? ["✔ healthy", "good"] : ["no probe", "none"];
    const errors = origin.last_minute.errors;
    return [[origin.name, "long"], health, [count(origin.requests_per_second), "number"], [count(errors), errors > 0 ? "number bad" : "number"],
      [duration(origin.last_minute.mean_seconds), "number"], [count(origin.failures), "number"], [count(origin.connections), "number"]];
  }), "No origins");
}

function storage(data) {
  $("s-objects").textContent = count(data.objects);
  $("s-evictions").textContent = count(data.evictions_per_second);
  $("s-expired").textContent = count(data.expired_per_second);
  fill("store-table", data.stores.map((store) => {
    const place = element("span", store.fill == null ? "no limit" : percent(store.fill) + " ");
    if (store.fill != null) {
      const bar = element("progress");
      bar.value = store.fill;
      bar.setAttribute("aria-label", "Fill of " + store.name);
      place.append(bar);
    }
    const shown = store.kind === "disk" ? (value) => count(value) + " segments" : bytes;
    return [store.name, store.kind, place, [shown(store.used), "number"], [store.fill == null ? "–" : shown(store.free), "number"], [count(store.objects), "number"], [count(store.failures), "number"], store.state || "–"];
  }), "No stores");
}

function lists(data) {
  if (state.paused) return;
  const bans = data.bans;
  $("s-bans").textContent = count(bans.length);
  $("s-tags").textContent = count(data.tags);
  fill("ban-table", bans.slice(0, 50).map((ban) => {
    const text = ban.tests ? ban.tests.join(" && ") : ban.ban || ban.spec || "";
    return [clock(ban.time), [count(ban.refs), "number"], ban.completed ? "completed" : "in effect", [text, "long"]];
  }), "No bans");
  fill("vcl-table", data.vcls.map((vcl) => {
    const place = element("span");
    if (vcl.status === "available") place.append(button("use", "Use " + vcl.name, () => use(vcl.name)));
    return [[vcl.name, "long"], vcl.status === "active" ? ["active", "good"] : vcl.status, vcl.state || "", vcl.temperature || "", place];
  }), "No VCL");
}

// The requests of a second by their time: the difference of two totals.
function heat(totals) {
  const sum = totals.hits.map((hits, at) => hits + totals.misses[at]);
  if (state.totals) {
    const column = sum.map((total, at) => Math.max(0, total - state.totals[at]));
    state.heat.push(column);
    state.heat = state.heat.slice(-HISTORY);
  }
  state.totals = sum;
  state.limits = totals.limits;
}

function canvas(id) {
  const place = $(id);
  const box = place.getBoundingClientRect();
  const scale = window.devicePixelRatio || 1;
  const [width, height] = [Math.round(box.width * scale), Math.round(box.height * scale)];
  if (place.width !== width || place.height !== height) { place.width = width; place.height = height; }
  const pen = place.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, box.width, box.height);
  pen.font = "11px system-ui, sans-serif";
  return [pen, box.width, box.height];
}
function color(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

// Draws areas, one on top of the other, with the greatest value as the scale.
function areas(id, points, names, shown) {
  const [pen, width, height] = canvas(id);
  const top = Math.max(1, ...points.map((values) => values.reduce((a, b) => a + b, 0)));
  const [left, bottom] = [8, height - 4];
  const x = (at) => left + (width - left) * (HISTORY - points.length + 1 + at) / HISTORY;
  const y = (value) => bottom - (bottom - 14) * value / top;
  let below = points.map(() => 0);
  for (let layer = 0; layer < names.length; layer += 1) {
    const sums = points.map((values, at) => below[at] + values[layer]);
    pen.fillStyle = color(names[layer]);
    pen.beginPath();
    sums.forEach((value, at) => pen.lineTo(x(at), y(value)));
    for (let at = points.length - 1; at >= 0; at -= 1) pen.lineTo(x(at), y(below[at]));
    pen.fill();
    below = sums;
  }
  pen.strokeStyle = color("--line");
  pen.strokeRect(left, 14, width - left - 1, bottom - 14);
  pen.fillStyle = color("--faint");
  pen.fillText(shown(top), left, 10);
  const present = points.at(-1);
  $(id + "-text").textContent = present ? "Now " + shown(present.reduce((a, b) => a + b, 0)) + ", at most " + shown(top) + " in the last two minutes" : "No values yet";
}

function draw() {
  const rates = state.history.slice(1).map((point, at) => {
    const before = state.history[at];
    const seconds = Math.max(0.1, point.time - before.time);
    const [requests, hits] = [(point.requests - before.requests) / seconds, (point.hits - before.hits) / seconds];
    return { hits, others: Math.max(0, requests - hits), bytes: Math.max(0, point.bytes - before.bytes) / seconds };
  });
  areas("c-requests", rates.map((rate) => [rate.hits, rate.others]), ["--a", "--b"], (value) => count(value) + "/s");
  areas("c-bytes", rates.map((rate) => [rate.bytes]), ["--a"], (value) => bytes(value) + "/s");
  drawHeat();
}

function drawHeat() {
  const [pen, width, height] = canvas("c-heat");
  const rows = state.limits.length + 1;
  const left = 62;
  const [cell, line] = [(width - left) / HISTORY, height / rows];
  const most = Math.max(1, ...state.heat.flat());
  pen.fillStyle = color("--a");
  state.heat.forEach((column, at) => column.forEach((value, row) => {
    if (value === 0) return;
    pen.globalAlpha = 0.15 + 0.85 * Math.log1p(value) / Math.log1p(most);
    pen.fillRect(left + cell * (HISTORY - state.heat.length + at), height - line * (row + 1), Math.max(1, cell - 0.5), line - 0.5);
  }));
  pen.globalAlpha = 1;
  pen.fillStyle = color("--faint");
  state.limits.forEach((limit, row) => { if (row % 3 === 1) pen.fillText("≤ " + duration(limit), 0, height - line * row - 2); });
  const last = state.heat.at(-1) || [];
  const peak = last.indexOf(Math.max(0, ...last));
  $("c-heat-text").textContent = last.some((value) => value > 0) ? "In the last second, most requests took " + (peak < state.limits.length ? "up to " + duration(state.limits[peak]) : "longer than all limits") : "No requests in the last second";
}

function confirmed(text) {
  const dialog = $("confirm");
  $("confirm-text").textContent = text;
  return new Promise((done) => {
    let answer = false;
    $("confirm-yes").onclick = () => { answer = true; dialog.close(); };
    $("confirm-no").onclick = () => dialog.close();
    dialog.onclose = () => done(answer);
    dialog.showModal();
    $("confirm-no").focus();
  });
}

async function purge(kind, value, soft) {
  const what = { url: "all copies of the page ", tag: "all objects with the tag ", pattern: "all pages whose URL matches " }[kind];
  if (!await confirmed("Purge " + what + value + "?")) return;
  const answer = $("purge-answer");
  try {
    if (kind === "tag") {
      const done = await call("POST", "/api/v1/tag", { tags: value.split(/\s+/), soft });
      answer.textContent = "Purged " + count(done.purged) + " objects with the tag " + value;
    } else {
      const done = await call("POST", "/api/v1/purge", { [kind]: value });
      answer.textContent = "Purged: " + done.ban;
    }
    answer.className = "good";
  } catch (error) { answer.textContent = "Not purged: " + error.message; answer.className = "bad"; }
}

async function use(name) {
  if (!await confirmed("Use the VCL " + name + " for new requests?")) return;
  try { await call("POST", "/api/v1/vcl/" + encodeURIComponent(name) + "/use"); $("vcl-answer").textContent = name + " is in use"; }
  catch (error) { $("vcl-answer").textContent = "Not changed: " + error.message; }
}

async function ask(url) {
  $("why-url").value = url;
  const place = $("why-answer");
  place.replaceChildren(element("p", "Asking…"));
  $("why").scrollIntoView();
  try {
    const answer = await call("POST", "/api/v1/why", { url });
    const made = [element("p", answer.request)];
    const outcome = element("p");
    outcome.append(element("strong", answer.outcome), " " + (answer.explanation || ""));
    made.push(outcome);
    const steps = element("ol");
    for (const step of answer.steps || []) steps.append(element("li", step.name + ": " + step.lines.join("; ")));
    if (steps.children.length > 0) made.push(steps);
    if (answer.advice) made.push(element("p", answer.advice));
    for (const note of answer.notes || []) made.push(element("p", note));
    place.replaceChildren(...made);
  } catch (error) { place.replaceChildren(element("p", error.message, "bad")); }
}

async function log() {
  if (state.log) { state.log.abort(); state.log = null; pressed("log-apply", false, "Start"); return; }
  const abort = new AbortController();
  state.log = abort;
  pressed("log-apply", true, "Stop");
  $("log-dropped").textContent = "";
  const query = new URLSearchParams({ log: "1" });
  if ($("log-url").value) query.set("url", $("log-url").value);
  if ($("log-status").value) query.set("status", $("log-status").value);
  if ($("log-misses").checked) query.set("misses", "1");
  const body = $("log-table").tBodies[0];
  body.replaceChildren();
  try {
    await listen("/api/v1/events?" + query, abort, (name, line) => {
      if (name === "dropped") $("log-dropped").textContent = count(line.count) + " requests were left out";
      if (name !== "log" || state.paused) return;
      const row = element("tr");
      row.append(element("td", clock(line.time)), element("td", line.client), element("td", line.method + " " + line.host + line.url, "long"),
        element("td", line.status, line.status >= 500 ? "bad" : ""), element("td", line.handling), element("td", bytes(line.bytes), "number"), element("td", duration(line.seconds), "number"));
      body.prepend(row);
      while (body.rows.length > LINES) body.lastElementChild.remove();
    });
  } catch (error) { if (!abort.signal.aborted) $("log-dropped").textContent = "The log has ended: " + error.message; }
  if (state.log === abort) { state.log = null; pressed("log-apply", false, "Start"); }
}

function pressed(id, is, text) { $(id).setAttribute("aria-pressed", String(is)); $(id).textContent = text; }

function logout(why) {
  for (const open of [state.stream, state.log]) if (open) open.abort();
  state.stream = state.log = null;
  state.token = "";
  sessionStorage.removeItem(KEY);
  $("content").hidden = true;
  $("login").hidden = false;
  $("login-error").textContent = why;
  show("Not connected");
  $("token").focus();
}

async function login(token) {
  state.token = token;
  try { await call("GET", "/api/v1/storages"); }
  catch (error) { logout(!/token/i.test(error.message) ? error.message : token ? "The token is wrong." : ""); return; }
  sessionStorage.setItem(KEY, token);
  $("login").hidden = true;
  $("content").hidden = false;
  $("token").value = "";
  follow();
}

$("login-form").addEventListener("submit", (event) => { event.preventDefault(); login($("token").value.trim()); });
$("pause").addEventListener("click", () => { state.paused = !state.paused; pressed("pause", state.paused, state.paused ? "Continue" : "Pause"); });
$("leave").addEventListener("click", () => logout(""));
$("log-form").addEventListener("submit", (event) => { event.preventDefault(); log(); });
$("why-form").addEventListener("submit", (event) => { event.preventDefault(); ask($("why-url").value.trim()); });
$("purge-kind").addEventListener("change", () => { $("purge-soft-label").hidden = $("purge-kind").value !== "tag"; });
$("purge-form").addEventListener("submit", (event) => { event.preventDefault(); purge($("purge-kind").value, $("purge-text").value.trim(), $("purge-soft").checked); });
window.addEventListener("resize", () => { if (!$("content").hidden) draw(); });
// A link may carry the token behind the number sign, which is not sent to the server.
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) history.replaceState(null, "", location.pathname);
// A UNIX socket needs no token: an empty one is tried first.
login(given || sessionStorage.getItem(KEY) || "");
