
"use strict";
// All values come from clients and origins: they are inserted as text, never as markup.
/** @param {string} id */
const $ = (id) => the(id, HTMLElement);
/**
 * Returns an element of the page, which must be of this kind.
 * @template {HTMLElement} T
 * @param {string} id
 * @param {new () => T} kind
 */
function the(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error("the page has no such element: " + id);
  return found;
}
/** @param {string} id */
const field = (id) => the(id, HTMLInputElement);
/** @param {string} id */
const table = (id) => the(id, HTMLTableElement);
const KEY = "lacquer-token";
const HISTORY = 120;
const LINES = 500;
/** Characters of a URL that a table shows at once. */
const SHORT = 120;
/** Characters after which lists of URLs are cut, and bytes of a record of the log unless the daemon names another number. */
const LISTED = 400;
const RECORD = 255;
/**
 * @typedef {{ time: number, requests: number, hits: number, bytes: number }} Point
 * @type {{ token: string, login: number, stream: AbortController | null, log: AbortController | null, paused: boolean, history: Point[],
 *   totals: number[] | null, heat: number[][], limits: number[], record: number, open: Set<string> }}
 */
const state = { token: "", login: 0, stream: null, log: null, paused: false, history: [], totals: null, heat: [], limits: [], record: RECORD, open: new Set() };

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
/** @param {number | null | undefined} value */
function count(value) { return value == null ? "–" : number.format(value); }
/** @param {number | null | undefined} value */
function percent(value) { return value == null ? "–" : (100 * value).toFixed(1) + " %"; }
/** @param {number | null | undefined} value */
function bytes(value) {
  if (value == null) return "–";
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) { value /= 1000; at += 1; }
  return number.format(value) + " " + units[at];
}
/** @param {number | null | undefined} seconds */
function duration(seconds) {
  if (seconds == null) return "–";
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return number.format(seconds * 1e6) + " µs";
  if (seconds < 1) return number.format(seconds * 1e3) + " ms";
  if (seconds < 120) return number.format(seconds) + " s";
  if (seconds < 7200) return number.format(seconds / 60) + " min";
  return seconds < 172800 ? number.format(seconds / 3600) + " h" : number.format(seconds / 86400) + " days";
}
/** @param {number} seconds */
function clock(seconds) { return new Date(seconds * 1000).toISOString().slice(11, 23); }

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} name
 * @param {string | number | null} [text]
 * @param {string | number} [kind] the class
 */
function element(name, text, kind) {
  const made = document.createElement(name);
  if (text != null) made.textContent = String(text);
  if (kind) made.className = String(kind);
  return made;
}
/**
 * @param {string} text
 * @param {string} label
 * @param {() => void} action
 */
function button(text, label, action) {
  const made = element("button", text, "small");
  made.type = "button";
  made.setAttribute("aria-label", label);
  made.dataset.key = label;
  made.addEventListener("click", action);
  return made;
}
/**
 * Fills a table. A cell is a text, an element, or a pair of text and class.
 * @param {string} id
 * @param {Cell[][]} rows
 * @param {string} none
 */
function fill(id, rows, none) {
  const body = table(id).tBodies[0];
  const made = rows.map((cells) => {
    const row = element("tr");
    for (const cell of cells) {
      if (cell instanceof Node) { const place = element("td", null, cell instanceof HTMLDetailsElement ? "long" : "acts"); place.append(cell); row.append(place); }
      else if (Array.isArray(cell)) row.append(element("td", cell[0], cell[1]));
      else row.append(element("td", cell));
    }
    return row;
  });
  if (made.length === 0) {
    const row = element("tr");
    const cell = element("td", none, "none");
    cell.colSpan = table(id).rows[0].cells.length;
    row.append(cell);
    made.push(row);
  }
  // A press that has begun, and the button to which a dialog returns the focus, keep their elements.
  if (body.matches(":active") || the("confirm", HTMLDialogElement).open) return;
  const focused = document.activeElement;
  const key = focused instanceof HTMLElement && body.contains(focused) ? focused.dataset.key : undefined;
  body.replaceChildren(...made);
  if (key === undefined) return;
  // The focus stays on what it was on, or in the table if that is gone.
  const all = /** @type {HTMLElement[]} */ ([...body.querySelectorAll("[data-key]")]);
  const next = all.find((other) => other.dataset.key === key) || table(id).parentElement;
  if (next) next.focus({ preventScroll: true });
}
/**
 * Returns the cell of a URL: the beginning of a long one, which opens.
 * @param {string} url
 * @returns {Cell}
 */
function long(url) {
  if (url.length <= SHORT) return [url, "long"];
  const place = element("details");
  const head = element("summary", url.slice(0, SHORT) + "…");
  head.dataset.key = "all of " + url;
  place.open = state.open.has(url);
  place.addEventListener("toggle", () => { if (place.open) state.open.add(url); else state.open.delete(url); });
  place.append(head, url);
  return place;
}
/**
 * Returns why a text of the log is not the URL that was requested, or "" if it is.
 * @param {string} url host and path
 */
function flaw(url) {
  const at = (url + "/").indexOf("/");
  // A record has a byte for its end, and that of the host begins with its name.
  if (url.length >= LISTED || url.length - at >= state.record - 1 || at + 6 >= state.record - 1) return "cut off";
  return /[^!-~]|[\\#]/.test(url) || !/^[\w.:[\]-]*$/.test(url.slice(0, at)) ? "escaped" : "";
}

/**
 * @param {string} method
 * @param {string} path
 * @param {object} [body]
 */
async function call(method, path, body) {
  /** @type {Record<string, string>} */
  const headers = { Authorization: "Bearer " + state.token };
  if (body) headers["Content-Type"] = "application/json";
  const response = await fetch(path, { method, headers, body: body && JSON.stringify(body), cache: "no-store" });
  const text = await response.text();
  /** @type {any} */
  let json = {};
  try { json = JSON.parse(text); } catch { json = { error: text }; }
  if (!response.ok) throw new Error(json.error || "status " + response.status);
  return json;
}

/** The failure of a request, with the status of its response. */
class Refused extends Error {
  /** @param {number} status */
  constructor(status) {
    super("status " + status);
    this.status = status;
  }
}
/** @param {unknown} error */
const reason = (error) => error instanceof Error ? error.message : String(error);

/**
 * Reads a stream of events until it ends or is aborted.
 * @param {string} path
 * @param {AbortController} abort
 * @param {(name: string, data: any) => void} each
 */
async function listen(path, abort, each) {
  const headers = { Authorization: "Bearer " + state.token };
  const response = await fetch(path, { headers, signal: abort.signal, cache: "no-store" });
  if (!response.ok) throw new Refused(response.status);
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop() || "";
    for (const text of events) {
      const fields = Object.fromEntries(text.split("\n").map((line) => { const at = line.indexOf(": "); return [line.slice(0, at), line.slice(at + 2)]; }));
      if (!fields.event || !fields.data) continue;
      const data = JSON.parse(fields.data);
      // A fault of the page does not end the connection.
      try { each(fields.event, data); } catch (error) { show("The page has failed: " + reason(error), true); reportError(error); }
    }
  }
}

/**
 * @param {string} text
 * @param {boolean} [bad]
 */
function show(text, bad) { const place = $("status"); if (place.textContent !== text) place.textContent = text; place.className = bad ? "bad" : ""; }

/** @param {number} login the number of the login whose events these are */
async function follow(login) {
  while (login === state.login) {
    const abort = new AbortController();
    state.stream = abort;
    try {
      await listen("/api/v1/events", abort, (name, data) => {
        if (name === "snapshot") snapshot(data);
        if (name === "lists") lists(data);
      });
      if (login === state.login) show("The connection has ended", true);
    } catch (error) {
      if (abort.signal.aborted || login !== state.login) return;
      if (error instanceof Refused && error.status === 401) { logout("The token is wrong."); return; }
      show("No connection: " + reason(error), true);
    }
    await new Promise((done) => setTimeout(done, 2000));
  }
}

/** @param {Snapshot} data */
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
  origins(data.origins, data.origin_counts);
  storage(data.storage);
  /** @param {Snapshot["busiest"][number]} url @returns {Cell[]} */
  const busiest = (url) => [long(url.url), [count(url.requests), "number"], [percent(url.hit_ratio), "number"], actions(url)];
  fill("busiest", data.busiest.slice(0, 15).map(busiest), "No requests");
  fill("missed", data.missed.slice(0, 15).map((url) => [long(url.url), [count(url.requests), "number"], [duration(url.mean_seconds), "number"], actions(url)]), "No misses");
  fill("slowest", data.slowest.slice(0, 15).map((url) => [long(url.url), [duration(url.seconds), "number"], [url.status, "number"], actions(url)]), "No requests");
  draw();
}

/** @param {Page} page */
function actions(page) {
  const place = element("span");
  const url = page.url;
  // VCL may have rewritten what a client asked for, so the question is asked as the client asked.
  const asked = page.asked || url;
  const why = flaw(url);
  if (why) {
    place.textContent = why;
    place.title = why === "escaped" ? "The URL does not begin with a slash, or contains bytes or a fragment that the log does not show as they are. Purge it by a pattern." : "The log has only the beginning of the URL (vsl_reclen). Purge it by a pattern.";
    place.className = "none";
    return place;
  }
  if (!flaw(asked)) place.append(button("why", "Why: " + asked, () => ask(asked)), " ");
  place.append(button("purge", "Purge " + url, () => purge("url", url, false)));
  return place;
}

/** @param {Snapshot["latency"]} data */
function latency(data) {
  /** @param {string} name @param {Latencies} all @returns {Cell[]} */
  const row = (name, all) => [name, [count(all.count), "number"], [duration(all.p50), "number"], [duration(all.p95), "number"], [duration(all.p99), "number"], [duration(all.max), "number"]];
  fill("latency", [row("hits", data.hits), row("misses and passes", data.misses)], "");
}

/**
 * @param {Origin[]} all
 * @param {Snapshot["origin_counts"]} counts
 */
function origins(all, counts) {
  const part = all.length < counts.all ? count(all.length) + " of " : "";
  const order = part && ". Those in trouble are first, and then the busiest";
  $("origin-counts").textContent = part + count(counts.all) + " origins, " + count(counts.sick) + " sick" + order;
  fill("origin-table", all.map((origin) => {
    const set = origin.set_by_operator ? "set " : "";
    const by = set && " by operator";
    const health = origin.health === "sick" ? ["✖ " + set + "sick" + by, "bad"] : origin.health === "healthy" ? ["✔ " + set + "healthy" + by, "good"] : ["unknown", "none"];
    const errors = origin.last_minute.errors;
    return [[origin.name, "long"], health, [count(origin.requests_per_second), "number"], [count(errors), errors > 0 ? "number bad" : "number"],
      [duration(origin.last_minute.mean_seconds), "number"], [count(origin.failures), "number"], [count(origin.connections), "number"]];
  }), "No origins");
}

/** @param {StorageState} data */
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
    const shown = store.kind === "disk" ? (/** @type {number} */ value) => count(value) + " segments" : bytes;
    return [store.name, store.kind, place, [shown(store.used), "number"], [store.fill == null ? "–" : shown(store.free), "number"], [count(store.objects), "number"], [count(store.failures), "number"], store.state || "–"];
  }), "No stores");
}

/**
 * Without a worker, the storages have no ages.
 * @param {StorageAges[] | null} all
 */
function ages(all) {
  const head = table("age-table").tHead;
  const limits = (all || []).find((storage) => storage.ages)?.ages?.limits || [];
  if (head && limits.length > 0 && head.rows[0].cells.length === 2) {
    const names = limits.map((limit) => "≤ " + duration(limit)).concat("> " + duration(limits[limits.length - 1]));
    for (const name of names) { const cell = element("th", name, "number"); cell.scope = "col"; head.rows[0].insertBefore(cell, head.rows[0].lastElementChild); }
  }
  const columns = head ? head.rows[0].cells.length - 2 : 0;
  fill("age-table", (all || []).map((storage) => {
    /** @type {number[]} */
    const objects = storage.ages ? storage.ages.objects : Array(columns).fill(0);
    const sum = objects.reduce((a, b) => a + b, 0);
    const oldest = Math.max(-1, ...(storage.disks || []).map((disk) => disk.oldest ?? -1));
    return [storage.name, ...objects.map((part) => [part > 0 ? percent(part / sum) : "–", "number"]), [oldest < 0 ? "–" : duration(oldest), "number"]];
  }), all ? "No storages" : unlisted(null));
}

/**
 * Returns the text for a list that did not arrive.
 * @param {number | null} size
 */
function unlisted(size) { return size == null ? "Unknown" : count(size) + " bans, too many to list"; }

/** @param {Lists} data */
function lists(data) {
  if (state.paused) return;
  state.record = data.record_length || RECORD;
  $("s-bans").textContent = count(data.ban_count);
  $("s-tags").textContent = count(data.tags);
  fill("ban-table", (data.bans || []).slice(0, 50).map((ban) => {
    const text = ban.tests ? ban.tests.join(" && ") : ban.ban || ban.spec || "";
    return [clock(ban.time), [count(ban.refs), "number"], ban.completed ? "completed" : "in effect", [text, "long"]];
  }), data.bans ? "No bans" : unlisted(data.ban_count));
  ages(data.storages);
  fill("vcl-table", (data.vcls || []).map((vcl) => {
    const place = element("span");
    if (vcl.status === "available") place.append(button("use", "Use " + vcl.name, () => use(vcl.name)));
    return [[vcl.name, "long"], vcl.status === "active" ? ["active", "good"] : vcl.status, vcl.state || "", vcl.temperature || "", place];
  }), data.vcls ? "No VCL" : unlisted(null));
}

/**
 * The requests of a second by their time: the difference of two totals.
 * @param {Totals} totals
 */
function heat(totals) {
  const sum = totals.hits.map((hits, at) => hits + totals.misses[at]);
  const before = state.totals;
  if (before) {
    const column = sum.map((total, at) => Math.max(0, total - before[at]));
    state.heat.push(column);
    state.heat = state.heat.slice(-HISTORY);
  }
  state.totals = sum;
  state.limits = totals.limits;
}

/**
 * @param {string} id
 * @returns {[CanvasRenderingContext2D, number, number]}
 */
function canvas(id) {
  const place = the(id, HTMLCanvasElement);
  const box = place.getBoundingClientRect();
  const scale = window.devicePixelRatio || 1;
  const [width, height] = [Math.round(box.width * scale), Math.round(box.height * scale)];
  if (place.width !== width || place.height !== height) { place.width = width; place.height = height; }
  const pen = place.getContext("2d");
  if (!pen) throw new Error("the browser cannot draw");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, box.width, box.height);
  pen.font = "11px system-ui, sans-serif";
  return [pen, box.width, box.height];
}
/** @param {string} name */
function color(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

/**
 * Draws areas, one on top of the other, with the greatest value as the scale.
 * @param {string} id
 * @param {number[][]} points
 * @param {string[]} names the variables of their colours
 * @param {(value: number) => string} shown
 */
function areas(id, points, names, shown) {
  const [pen, width, height] = canvas(id);
  const top = Math.max(1, ...points.map((values) => values.reduce((a, b) => a + b, 0)));
  const [left, bottom] = [8, height - 4];
  /** @param {number} at */
  const x = (at) => left + (width - left) * (HISTORY - points.length + 1 + at) / HISTORY;
  /** @param {number} value */
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

/**
 * @param {string} text
 * @returns {Promise<boolean>}
 */
function confirmed(text) {
  const dialog = the("confirm", HTMLDialogElement);
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

/**
 * @param {string} kind
 * @param {string} value
 * @param {boolean} soft
 */
async function purge(kind, value, soft) {
  /** @type {Record<string, string>} */
  const targets = { url: "all copies of the page ", tag: "all objects with the tag ", pattern: "all pages whose URL matches " };
  if (!await confirmed("Purge " + targets[kind] + value + "?")) return;
  const answer = $("purge-answer");
  try {
    if (kind === "tag") {
      const done = await call("POST", "/api/v1/tag", { tags: value.split(/\s+/), soft });
      answer.textContent = "Purged " + count(done.purged) + " objects with the tag " + value;
    } else {
      const done = await call("POST", "/api/v1/purge", { [kind]: value });
      answer.textContent = "Banned: " + done.ban + ". Copies that match are not served any more; the number is not known.";
    }
    answer.className = "good";
  } catch (error) { answer.textContent = "Not purged: " + reason(error); answer.className = "bad"; }
}

/** @param {string} name */
async function use(name) {
  if (!await confirmed("Use the VCL " + name + " for new requests?")) return;
  try { await call("POST", "/api/v1/vcl/" + encodeURIComponent(name) + "/use"); $("vcl-answer").textContent = name + " is in use"; }
  catch (error) { $("vcl-answer").textContent = "Not changed: " + reason(error); }
}

/** @param {string} url */
async function ask(url) {
  field("why-url").value = url;
  const place = $("why-answer");
  place.replaceChildren(element("p", "Asking…"));
  $("why").scrollIntoView();
  try {
    /** @type {Why} */
    const answer = await call("POST", "/api/v1/why", { url });
    /** @type {HTMLElement[]} */
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
  } catch (error) { place.replaceChildren(element("p", reason(error), "bad")); }
}

async function log() {
  if (state.log) { state.log.abort(); state.log = null; pressed("log-apply", false, "Start"); return; }
  const abort = new AbortController();
  state.log = abort;
  pressed("log-apply", true, "Stop");
  $("log-dropped").textContent = "";
  const query = new URLSearchParams({ log: "1" });
  if (field("log-url").value) query.set("url", field("log-url").value);
  if (field("log-status").value) query.set("status", field("log-status").value);
  if (field("log-misses").checked) query.set("misses", "1");
  const body = table("log-table").tBodies[0];
  body.replaceChildren();
  try {
    await listen("/api/v1/events?" + query, abort, (name, line) => {
      if (name === "dropped") $("log-dropped").textContent = count(line.count) + " requests were left out";
      if (name !== "log" || state.paused) return;
      const row = element("tr");
      row.append(element("td", clock(line.epoch)), element("td", line.client ?? ""), element("td", (line.method ?? "") + " " + (line.host ?? "") + (line.url ?? ""), "long"),
        element("td", line.status ?? "", (line.status ?? 0) >= 500 ? "bad" : ""), element("td", line.handling), element("td", bytes(line.bytes), "number"), element("td", duration(line.seconds), "number"));
      body.prepend(row);
      while (body.rows.length > LINES) body.deleteRow(-1);
    });
  } catch (error) { if (!abort.signal.aborted) $("log-dropped").textContent = "The log has ended: " + reason(error); }
  if (state.log === abort) { state.log = null; pressed("log-apply", false, "Start"); }
}

/**
 * @param {string} id
 * @param {boolean} is
 * @param {string} text
 */
function pressed(id, is, text) { $(id).setAttribute("aria-pressed", String(is)); $(id).textContent = text; }

/** @param {string} why */
function logout(why) {
  for (const open of [state.stream, state.log]) if (open) open.abort();
  state.stream = state.log = null;
  state.login += 1;
  state.token = "";
  sessionStorage.removeItem(KEY);
  $("content").hidden = true;
  $("login").hidden = false;
  $("login-error").textContent = why;
  show("Not connected");
  $("token").focus();
}

/** @param {string} token */
async function login(token) {
  state.token = token;
  state.login += 1;
  const own = state.login;
  try { await call("GET", "/api/v1/storages"); }
  catch (error) { if (own === state.login) logout(!/token/i.test(reason(error)) ? reason(error) : token ? "The token is wrong." : ""); return; }
  // Another login has begun, or the user has left.
  if (own !== state.login) return;
  sessionStorage.setItem(KEY, token);
  $("login").hidden = true;
  $("content").hidden = false;
  field("token").value = "";
  follow(own);
}

$("login-form").addEventListener("submit", (event) => { event.preventDefault(); login(field("token").value.trim()); });
$("pause").addEventListener("click", () => { state.paused = !state.paused; pressed("pause", state.paused, state.paused ? "Continue" : "Pause"); });
$("leave").addEventListener("click", () => logout(""));
$("log-form").addEventListener("submit", (event) => { event.preventDefault(); log(); });
$("why-form").addEventListener("submit", (event) => { event.preventDefault(); ask(field("why-url").value.trim()); });
$("purge-kind").addEventListener("change", () => { $("purge-soft-label").hidden = the("purge-kind", HTMLSelectElement).value !== "tag"; });
$("purge-form").addEventListener("submit", (event) => { event.preventDefault(); purge(the("purge-kind", HTMLSelectElement).value, field("purge-text").value.trim(), field("purge-soft").checked); });
window.addEventListener("resize", () => { if (!$("content").hidden) draw(); });
// A link may carry the token behind the number sign, which is not sent to the server.
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) history.replaceState(null, "", location.pathname);
// A UNIX socket needs no token: an empty one is tried first.
login(given || sessionStorage.getItem(KEY) || "");
