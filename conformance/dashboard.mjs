// The checks of conformance/dashboard.
import { spawn } from "node:child_process";
import { createServer } from "node:http";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer as listen } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const words = process.argv.slice(2);
const option = (name, other) => { const at = words.indexOf(name); return at < 0 ? other : words[at + 1]; };
const daemon = resolve(option("--daemon", "target/release/lacquerd"));
const shots = option("--screenshots", null);
const folder = mkdtempSync(join(tmpdir(), "lacquer-dashboard-"));
const children = [];
const sleep = (time) => new Promise((done) => setTimeout(done, time));

function freePort() {
  return new Promise((done) => { const probe = listen().listen(0, "127.0.0.1", () => { const { port } = probe.address(); probe.close(() => done(port)); }); });
}
function check(what, is, more = "") {
  if (!is) throw new Error(`failed: ${what} ${more}`);
  console.log(`ok: ${what}`);
}
async function until(what, test, seconds = 20) {
  const end = Date.now() + seconds * 1000;
  let last;
  while (Date.now() < end) {
    try { last = await test(); if (last) { console.log(`ok: ${what}`); return last; } } catch (error) { last = error; }
    await sleep(200);
  }
  throw new Error(`failed: ${what}: ${last}`);
}
function start(program, options) {
  const child = spawn(program, options, { stdio: ["ignore", "ignore", "pipe"] });
  let text = "";
  child.stderr.on("data", (data) => { text += data; });
  child.text = () => text;
  children.push(child);
  return child;
}

// A connection to the browser: commands with replies, and events.
class Browser {
  static async start() {
    const child = start("chromium", ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", `--user-data-dir=${folder}/browser`, "about:blank"]);
    const address = await until("the browser starts", () => /ws:\/\/\S+/.exec(child.text())?.[0], 40);
    const browser = new Browser();
    browser.socket = new WebSocket(address);
    browser.waiting = new Map();
    browser.number = 0;
    browser.messages = [];
    browser.socket.onmessage = (event) => {
      const message = JSON.parse(event.data);
      if (message.id) { const { done, failed } = browser.waiting.get(message.id); browser.waiting.delete(message.id); message.error ? failed(new Error(message.error.message)) : done(message.result); }
      else browser.messages.push(message);
    };
    await new Promise((done, failed) => { browser.socket.onopen = done; browser.socket.onerror = failed; });
    const { targetId } = await browser.send("Target.createTarget", { url: "about:blank" });
    browser.session = (await browser.send("Target.attachToTarget", { targetId, flatten: true })).sessionId;
    for (const domain of ["Page", "Runtime", "Log"]) await browser.send(domain + ".enable");
    return browser;
  }
  send(method, params = {}) {
    this.number += 1;
    const id = this.number;
    this.socket.send(JSON.stringify({ id, method, params, sessionId: this.session }));
    return new Promise((done, failed) => this.waiting.set(id, { done, failed }));
  }
  async run(expression) {
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description || exceptionDetails.text);
    return result.value;
  }
  async view(width, height, scheme, isMobile = false) {
    await this.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: isMobile });
    await this.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }, { name: "prefers-reduced-motion", value: "reduce" }] });
    await sleep(1200);
  }
  async shot(name, whole = true) {
    if (!shots) return;
    mkdirSync(shots, { recursive: true });
    const { data } = await this.send("Page.captureScreenshot", { format: "png", captureBeyondViewport: whole });
    writeFileSync(join(shots, name + ".png"), Buffer.from(data, "base64"));
  }
  async key(key, code, more = {}) {
    for (const type of ["keyDown", "keyUp"]) await this.send("Input.dispatchKeyEvent", { type, key, code: key, windowsVirtualKeyCode: code, ...(type === "keyDown" && more) });
  }
}

const ATTACKS = ["/<script>window.attacked=1</script>", "/<img src=x onerror=window.attacked=1>", "/\"><svg/onload=window.attacked=1>", "/';window.attacked=1;'", "/javascript:window.attacked=1"];

async function world() {
  let slow = 0;
  const origin = createServer((request, reply) => {
    slow += 1;
    const send = () => { reply.writeHead(request.url.startsWith("/error") ? 503 : 200, { "Cache-Control": request.url.startsWith("/pass") ? "no-store" : "max-age=30", xkey: "news" }); reply.end("x".repeat(2000)); };
    if (slow % 9 === 0) setTimeout(send, 120); else send();
  });
  await new Promise((done) => origin.listen(0, "127.0.0.1", done));
  const [http, admin, management] = [await freePort(), await freePort(), await freePort()];
  const backend = `.host = "127.0.0.1"; .port = "${origin.address().port}"; .probe = { .url = "/"; .interval = 1s; }`;
  const vcl = `vcl 4.1;\nimport xkey;\nbackend news { ${backend} }\nbackend sick { .host = "127.0.0.1"; .port = "1"; .probe = { .url = "/"; .interval = 1s; } }\n` +
    "sub vcl_recv { set req.backend_hint = news; if (req.url ~ \"^/gone\") { set req.backend_hint = sick; } }\n";
  writeFileSync(join(folder, "site.vcl"), vcl);
  const manager = start(daemon, ["-F", "-n", join(folder, "n"), "-a", `127.0.0.1:${http}`, "-w", `127.0.0.1:${admin}`, "-f", join(folder, "site.vcl"), "-s", "malloc,64M", "-j", "none", "-T", `127.0.0.1:${management}`, "-S", "none"]);
  await until("the daemon is ready", async () => (await fetch(`http://127.0.0.1:${admin}/readyz`)).ok);
  const token = readFileSync(join(folder, "n/_.token"), "utf8").trim();
  const state = { stop: false };
  const load = async () => {
    for (let number = 0; !state.stop; number += 1) {
      const attack = ATTACKS[number % ATTACKS.length];
      const paths = [`/news/${number % 40}`, `/news/${number % 7}`, `/pass/${number % 5}`, number % 15 === 0 ? "/error" : "/", number % 30 === 0 ? "/gone" : "/", attack];
      for (const path of paths) await request(http, path);
      if (number % 4 === 0) for (const path of [LONG, ...FLAWED]) await request(http, path);
      // A host that no request may have: it is refused, and logged.
      if (number % 10 === 0) await request(http, "/", "<b>news</b>.example");
      await sleep(10);
    }
  };
  load();
  return { http, admin, management, manager: manager.pid, token, origin, state };
}

// Runs a command on the management port, which has no secret. Returns the status and the text of its reply.
async function command(port, line) {
  const { connect } = await import("node:net");
  const replies = await new Promise((done, failed) => {
    let text = "";
    // The daemon closes the connection after the reply to the second command.
    const socket = connect(port, "127.0.0.1", () => socket.write(line + "\nquit\n"));
    socket.setTimeout(30_000, () => socket.destroy(new Error("no reply to " + line)));
    socket.on("data", (data) => { text += data; });
    socket.on("error", failed);
    socket.on("close", () => done(text));
  });
  // The first reply is the greeting.
  const all = [...replies.matchAll(/^(\d{3}) (\d+) *$/gm)];
  check(`the daemon accepts ${line}`, all[1]?.[1] === "200", replies);
}

// A worker that is stopped: the page has what is known, and keeps its connection.
async function stopped(browser, management) {
  await command(management, "stop");
  const status = "document.getElementById('status').textContent";
  await until("a stopped worker is shown", async () => (await browser.run(status)).startsWith("Waiting"));
  await until("lists without a worker are shown", async () => (await browser.run(text("ban-table"))).includes("Unknown") && (await browser.run(text("age-table"))).includes("s0"));
  check("VCL programs are shown without a worker", (await browser.run(text("vcl-table"))).includes("boot"));
  // The page would ask again after two seconds.
  for (let number = 0; number < 15; number += 1) {
    const shown = await browser.run(status);
    check(`the connection lasts (${number})`, shown.startsWith("Waiting"), shown);
    await sleep(300);
  }
  await command(management, "start");
  await until("a worker that starts is shown", async () => await browser.run(status) === "Running");
}

// fetch() would encode the path.
async function request(port, path, host = "www.example.org") {
  const { connect } = await import("node:net");
  return new Promise((done) => {
    const socket = connect(port, "127.0.0.1", () => socket.write(`GET ${path.replaceAll(" ", "%20")} HTTP/1.1\r\nHost: ${host}\r\nUser-Agent: <script>window.attacked=1</script>\r\nConnection: close\r\n\r\n`));
    socket.on("data", () => {});
    socket.on("error", done);
    socket.on("close", done);
  });
}

const LONG = "/long/" + "x".repeat(180);
const FLAWED = ["/cut/" + "y".repeat(300), "/fragment#part"];
const click = (id) => `document.getElementById(${JSON.stringify(id)}).click()`;
const text = (id) => `document.getElementById(${JSON.stringify(id)}).innerText`;

async function axe(browser, view) {
  const file = "target/axe/node_modules/axe-core/axe.min.js";
  if (!existsSync(file)) { console.log("without axe-core"); return; }
  await browser.run(readFileSync(file, "utf8") + ";0");
  const found = await browser.run("axe.run(document, { resultTypes: ['violations'] }).then((all) => all.violations.map((one) => one.id + ': ' + one.nodes.map((node) => node.target.join(' ')).slice(0, 4).join(', ')))");
  check(`axe-core finds nothing (${view})`, found.length === 0, found.join("\n"));
}

async function views(browser) {
  for (const [name, width, scheme] of [["light", 1280, "light"], ["dark", 1280, "dark"], ["narrow", 390, "light"], ["narrow-dark", 390, "dark"]]) {
    await browser.view(width, name.startsWith("narrow") ? 844 : 900, scheme, name.startsWith("narrow"));
    const wide = await browser.run("document.documentElement.scrollWidth") - width;
    check(`the page is not wider than the window (${name})`, wide <= 0, wide);
    await axe(browser, name);
    await browser.run("scrollTo(0, 0)");
    await browser.shot(name);
    await browser.shot(name + "-top", false);
  }
  await browser.view(1280, 900, "light");
}

async function keyboard(browser) {
  await browser.run("document.activeElement.blur(); scrollTo(0, 0)");
  const seen = new Set();
  for (let number = 0; number < 120; number += 1) {
    await browser.key("Tab", 9);
    seen.add(await browser.run("document.activeElement.id || document.activeElement.textContent"));
  }
  for (const id of ["pause", "log-url", "log-apply", "why-url", "purge-kind", "purge-text"]) check(`Tab reaches ${id}`, seen.has(id), [...seen].join(" "));
}

// Rows of the list of URLs: the focus, long URLs, and URLs that the log does not have as they were.
async function rows(browser) {
  const row = (text) => `[...document.querySelectorAll("#busiest tbody tr")].find((row) => row.innerText.includes(${JSON.stringify(text)}))`;
  for (const path of FLAWED) await until(`nothing is offered for ${path.slice(0, 20)}`, () => browser.run(`${row(path.slice(0, 100))}?.querySelector("button") === null`));
  await until("a long URL is shortened", () => browser.run(`${row("/long/")}?.cells[0].innerText.endsWith("…")`));
  await browser.run(`${row("/long/")}.querySelector("summary").focus()`);
  await browser.key("Enter", 13, { text: "\r" });
  await sleep(2500);
  check("a long URL opens by keyboard and stays open", await browser.run(`${row("/long/")}.cells[0].innerText.includes(${JSON.stringify(LONG)})`));
  check("the focus stays on it", await browser.run(`document.activeElement === ${row("/long/")}.querySelector("summary")`));
  await browser.run(`${row("/pass/1")}.querySelector("button").focus(); document.kept = document.activeElement`);
  await until("a table with the focus is replaced", () => browser.run("!document.kept.isConnected"));
  check("the focus stays on its button", await browser.run("document.activeElement.dataset.key === document.kept.dataset.key"));
}

// A user who leaves while the page waits before it connects again.
async function left(browser, manager, admin, token) {
  const pids = readFileSync(`/proc/${manager}/task/${manager}/children`, "utf8").trim().split(/\s+/);
  const pid = pids.find((pid) => readFileSync(`/proc/${pid}/comm`, "utf8").trim() === "lacquer-admin");
  check("the admin process is found", pid !== undefined, pids.join(" "));
  process.kill(Number(pid), "SIGKILL");
  await until("the end of the connection is shown", () => browser.run("/connection/i.test(document.getElementById('status').textContent)"));
  await browser.run(click("leave"));
  // The pause is two seconds, and the process is started again after one.
  await sleep(4000);
  check("nothing is asked for a user who has left", await browser.run("document.getElementById('login-error').textContent === '' && document.getElementById('status').textContent === 'Not connected'"));
  await until("the admin process serves again", async () => (await fetch(`http://127.0.0.1:${admin}/readyz`)).ok, 60);
  await browser.run(`document.getElementById('token').value = ${JSON.stringify(token)}; document.getElementById('login-form').requestSubmit()`);
  await until("another login works", async () => await browser.run("document.getElementById('status').textContent") === "Running");
}

async function main() {
  const { http, admin, management, manager, token, origin, state } = await world();
  const browser = await Browser.start();
  await browser.view(1280, 900, "light");
  await browser.send("Page.navigate", { url: `http://127.0.0.1:${admin}/` });
  await until("the page asks for the token", () => browser.run("!document.getElementById('login').hidden"));
  const size = (await (await fetch(`http://127.0.0.1:${admin}/`)).arrayBuffer()).byteLength;
  check("the page has less than 150 kB", size < 150_000, size);
  const paint = await until("the first paint is before 300 ms", () => browser.run("performance.getEntriesByName('first-contentful-paint')[0]?.startTime"));
  check(`first paint after ${Math.round(paint)} ms`, paint < 300, paint);
  await axe(browser, "login");
  await browser.shot("login");
  await browser.run("document.getElementById('token').value = 'wrong-wrong-wrong-wrong'; document.getElementById('login-form').requestSubmit()");
  await until("a wrong token is refused", () => browser.run("document.getElementById('login-error').textContent.includes('wrong')"));
  await browser.run(`document.getElementById('token').value = ${JSON.stringify(token)}; document.getElementById('login-form').requestSubmit()`);
  await until("requests are shown", () => browser.run("parseFloat(document.getElementById('t-requests').textContent) > 1"));
  await until("a sick origin is shown", async () => (await browser.run(text("origin-table"))).includes("sick"));
  await until("the sick origins are counted", async () => await browser.run(text("origin-counts")) === "2 origins, 1 sick");
  await until("bans and VCL programs are shown", async () => (await browser.run(text("vcl-table"))).includes("boot"));
  await until("the ages of objects are shown", async () => /s0\s+100\.0 %/.test(await browser.run(text("age-table"))));
  await browser.run(click("log-apply"));
  await until("the live log has attacks as text", async () => (await browser.run(text("log-table"))).includes("<script>window.attacked"), 30);
  await until("the lists have attacks as text", async () => (await browser.run(text("busiest") + " + " + text("slowest"))).includes("<svg/onload=window.attacked=1>"));
  check("nothing that clients sent runs", await browser.run("window.attacked === undefined"));
  check("nothing that clients sent is markup", await browser.run("document.querySelectorAll('td script, td img, td svg, td b').length === 0"));
  await rows(browser);
  await browser.run("document.getElementById('why-url').value = 'news.example/news/1'; document.getElementById('why-form').requestSubmit()");
  await until("why explains a request", async () => /GET news\.example\/news\/1/.test(await browser.run(text("why-answer"))));
  await browser.run("document.getElementById('purge-text').value = '/news/3'; document.getElementById('purge-form').requestSubmit()");
  await until("a purge asks first", () => browser.run("document.getElementById('confirm').open"));
  await browser.shot("purge", false);
  await browser.key("Escape", 27);
  await sleep(300);
  check("Escape purges nothing", await browser.run("!document.getElementById('confirm').open && document.getElementById('purge-answer').textContent === ''"));
  await browser.run("document.getElementById('purge-form').requestSubmit()");
  await browser.run(click("confirm-yes"));
  await until("a confirmed purge is done", async () => (await browser.run(text("purge-answer"))).includes("/news/3"));
  await until("the ban is shown", async () => (await browser.run(text("ban-table"))).includes("/news/3"));
  await sleep(Number(option("--watch", "10")) * 1000);
  await views(browser);
  await keyboard(browser);
  await stopped(browser, management);
  await left(browser, manager, admin, token);
  const errors = browser.messages.filter((message) => message.method === "Runtime.exceptionThrown" || message.method === "Log.entryAdded" && message.params.entry.level === "error" && message.params.entry.source === "security");
  check("there is no error of a script or of the policy", errors.length === 0, JSON.stringify(errors[0]));
  state.stop = true;
  origin.close();
  void http;
}

let code = 0;
try { await main(); } catch (error) { console.log(String(error.stack || error)); code = 1; }
for (const child of children.reverse()) { child.kill("SIGTERM"); }
await sleep(1000);
rmSync(folder, { recursive: true, force: true });
process.exit(code);
