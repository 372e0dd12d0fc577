const find = (selector) => document.querySelector(selector);
const element = (tag, properties = {}, ...children) => {
  const created = Object.assign(document.createElement(tag), properties);
  created.append(...children);
  return created;
};
const setText = (node, text) => { if (node.textContent !== text) node.textContent = text; };
const show = (node, isShown) => { node.hidden = !isShown; };

/** The response to a request to the server; an error has the server's message. */
async function request(path, body, signal) {
  const options = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(path, { ...options, signal });
  if (!response.ok) throw new ServerError((await response.text()).trim());
  return response;
}
class ServerError extends Error {}

/* Runs and curves, updated while the page is visible. */

let listed = { runs: [], damaged: [], reports: [] };
let order = { key: null, ascending: true };
/** The runs whose curves are shown; null until there are runs. */
let checked = null;
let drawn = "";
const rows = new Map();
let rowCount = 0;

const best = (run) => run.best && (run.best.metric === "loss" || run.best.metric === "perplexity" ? -run.best.value : run.best.value);
const keys = {
  run: (run) => run.run, model: (run) => run.model, attention: (run) => run.mechanisms.join(", "), best,
  steps_done: (run) => run.steps_done, seconds: (run) => run.seconds, parameters: (run) => run.parameters, state: (run) => run.state,
};

function newRow(name) {
  const box = element("input", { type: "checkbox", id: `show-${rowCount++}`, checked: checked.has(name) });
  box.addEventListener("change", () => {
    if (box.checked) checked.add(name); else checked.delete(name);
    drawCurves();
  });
  const cell = (label, className = "") => {
    const created = element("td", { className });
    if (label) created.dataset.label = label;
    return created;
  };
  const cells = {
    model: cell(), attention: cell(), best: cell("best", "number"), steps: cell("steps", "number"),
    time: cell("time", "number"), parameters: cell("parameters", "number"), state: cell(),
  };
  const title = element("label", { htmlFor: box.id, textContent: name });
  const row = element("tr", {}, element("td", {}, box), element("td", {}, title), ...Object.values(cells));
  const value = element("span"), step = element("span", { className: "soft" });
  cells.best.append(value, step);
  const steps = element("span"), progress = element("progress");
  cells.steps.append(steps, progress);
  return { row, box, cells, value, step, steps, progress };
}

function updateRow({ row, cells, value, step, steps, progress }, run) {
  setText(cells.model, run.model);
  setText(cells.attention, run.mechanisms.join(", ") || "-");
  setText(value, run.text.best);
  setText(step, run.best ? ` at ${run.best.step.toLocaleString("en")}` : "");
  setText(steps, run.text.steps);
  const isRunning = run.state === "running";
  show(progress, isRunning && run.steps);
  if (isRunning && run.steps) {
    progress.max = run.steps;
    progress.value = run.steps_done;
    progress.ariaLabel = `steps of ${run.run}`;
  }
  setText(cells.time, run.text.time);
  setText(cells.parameters, run.text.parameters);
  setText(cells.state, run.state);
  cells.state.className = isRunning ? "running" : "";
  const words = [run.run, run.model, run.mechanisms.join(" "), run.state].join(" ").toLowerCase();
  const isFound = find("#filter").value.toLowerCase().split(/\s+/).every((part) => words.includes(part));
  show(row, isFound);
}

function renderRuns() {
  const runs = [...listed.runs];
  if (order.key) {
    const key = keys[order.key], sign = order.ascending ? 1 : -1;
    const compare = (a, b) => (a < b ? -sign : a > b ? sign : 0);
    // Runs without a value are last in both orders.
    runs.sort((a, b) => (key(a) == null) - (key(b) == null) || compare(key(a), key(b)));
  }
  const names = new Set(runs.map((run) => run.run));
  if (!checked && runs.length) {
    const running = runs.filter((run) => run.state === "running");
    checked = new Set((running.length ? running : runs.slice(0, 1)).map((run) => run.run));
  }
  for (const [name, { row }] of rows) if (!names.has(name)) { row.remove(); rows.delete(name); checked.delete(name); }
  const body = find("#table tbody");
  runs.forEach((run, i) => {
    if (!rows.has(run.run)) rows.set(run.run, newRow(run.run));
    const row = rows.get(run.run);
    updateRow(row, run);
    // Moving a row would lose the focus in it.
    if (body.children[i] !== row.row) body.insertBefore(row.row, body.children[i] ?? null);
  });
  show(find("#table"), runs.length);
  show(find("#filter"), runs.length > 3);
  show(find("#no-runs"), !runs.length);
  setText(find("#no-runs"), `No runs in ${listed.folder} yet. zoo train CONFIG creates one, and it appears here.`);
  setText(find("#folder"), listed.folder);
  const damaged = listed.damaged.map(({ run, error }) => element("li", { textContent: `${run} cannot be read: ${error}` }));
  find("#damaged").replaceChildren(...damaged);
  renderSelect(runs);
}

async function drawCurves() {
  const runs = listed.runs.filter((run) => checked?.has(run.run));
  const version = JSON.stringify(runs.map((run) => [run.run, run.steps_done, run.state, run.best]));
  const plots = find("#plots");
  // Values are not replaced while they are being read.
  if (version === drawn || plots.matches(":hover")) return;
  drawn = version;
  let html = "", error = "";
  try {
    if (runs.length) html = (await (await request("api/curves", { runs: runs.map((run) => run.run) })).json()).html;
  } catch (failure) {
    error = failure.message;
  }
  // Another selection may have been made meanwhile.
  if (version !== drawn) return;
  // Failed curves are requested again by the next update.
  if (error) drawn = "";
  show(find("#curves-title"), listed.runs.length);
  show(find("#curves-error"), error);
  setText(find("#curves-error"), error);
  const toggles = (state) => [...plots.querySelectorAll(`.chart-toggle[aria-pressed=${state}]`)];
  const hidden = new Set(toggles(false).map((button) => button.dataset.name));
  plots.innerHTML = html;
  drawCharts(plots);
  for (const button of toggles(true)) if (hidden.has(button.dataset.name)) button.click();
  if (!runs.length && listed.runs.length) plots.replaceChildren(element("p", { className: "soft", textContent: "Check a run to see its curves." }));
}

function renderReports() {
  setText(find("#reports-folder"), listed.reports.length ? listed.reports_folder : "");
  show(find("#no-reports"), !listed.reports.length);
  setText(find("#no-reports"), `No reports in ${listed.reports_folder}. cargo xtask bench writes one.`);
  const button = ({ name, path }) => {
    const created = element("button", { type: "button", textContent: name, ariaPressed: "false" });
    created.addEventListener("click", () => {
      find("#report-list [aria-pressed=true]")?.setAttribute("aria-pressed", "false");
      created.ariaPressed = "true";
      setText(find("#report h3"), name);
      openPage(find("#report"), path);
    });
    return created;
  };
  const shown = find("#report-list");
  const names = [...shown.children].map((child) => child.textContent).join("\n");
  if (names !== listed.reports.map(({ name }) => name).join("\n")) shown.replaceChildren(...listed.reports.map(button));
}

/** Shows a page in a frame. */
function openPage(parent, path) {
  parent.querySelector("a").href = path;
  parent.querySelector("iframe").src = path;
  show(parent, true);
}

async function refresh() {
  const start = performance.now();
  try {
    const text = await (await request("api/runs")).text();
    show(find("#offline"), false);
    if (text !== refresh.last) {
      refresh.last = text;
      listed = JSON.parse(text);
      renderRuns();
      renderReports();
    }
    await drawCurves();
  } catch (error) {
    const lost = "The server does not answer. Start zoo serve again and open the address that it prints.";
    setText(find("#offline"), error instanceof ServerError ? error.message : lost);
    show(find("#offline"), true);
  }
  // Listing many runs on a slow disk takes time.
  setTimeout(next, Math.min(10000, Math.max(2000, 10 * (performance.now() - start))));
}
function next() {
  if (document.hidden) document.addEventListener("visibilitychange", next, { once: true });
  else refresh();
}

find("#filter").addEventListener("input", renderRuns);
for (const button of document.querySelectorAll("#table th button")) {
  button.addEventListener("click", () => {
    const key = button.dataset.key;
    // Best first.
    order = { key, ascending: order.key === key ? !order.ascending : key !== "best" };
    for (const header of document.querySelectorAll("#table th")) header.removeAttribute("aria-sort");
    button.parentElement.setAttribute("aria-sort", order.ascending ? "ascending" : "descending");
    renderRuns();
  });
}

/* A text for a model. */

const form = find("#form"), text = find("#text"), select = find("#run");
const labels = {
  translate: ["Translate", "Text to translate, line by line"],
  classify: ["Classify", "Text to classify"],
  generate: ["Generate", "Prompt to continue"],
};
const command = () => listed.runs.find((run) => run.run === select.value)?.command;

function renderSelect(runs) {
  const names = runs.map((run) => run.run).sort();
  if ([...select.options].map((option) => option.value).join("\n") !== names.join("\n")) {
    const before = select.value || [...(checked ?? [])][0];
    select.replaceChildren(...names.map((name) => element("option", { value: name, textContent: name })));
    if (names.includes(before)) select.value = before;
  }
  show(find("#try"), names.length);
  renderCommand();
}

function renderCommand() {
  const [button, label] = labels[command()] ?? ["Run", "Text"];
  setText(find("#submit"), button);
  setText(find("#text-label"), label);
  show(find("#decoding"), command() !== "classify");
}

function renderStrategy() {
  const strategy = form.elements.strategy.value;
  for (const label of form.querySelectorAll("[data-strategy]")) show(label, label.dataset.strategy === strategy);
}

/** The decoding options that are set and shown. */
function decoding() {
  const options = {};
  if (command() === "classify") return options;
  for (const input of find("#decoding").querySelectorAll("input, select")) {
    if (!input.value || input.closest("label").hidden) continue;
    options[input.name] = input.type === "number" ? Number(input.value) : input.value;
  }
  return options;
}

const result = find("#result"), status = find("#status"), notes = find("#notes");
const events = {
  status: (message) => { status.classList.add("busy"); setText(status, message); },
  note: (message) => notes.append(element("li", { textContent: message })),
  text: (piece) => {
    const shown = result.querySelector("pre") ?? result.appendChild(element("pre", { className: "generated", dir: "auto" }));
    const isAtEnd = shown.scrollTop + shown.clientHeight >= shown.scrollHeight - 4;
    shown.append(piece);
    if (isAtEnd) shown.scrollTop = shown.scrollHeight;
  },
  translations: (lines) => result.replaceChildren(...lines.map(({ source, texts }) => {
    const hypothesis = ([translation, score]) => element("p", { className: "hypothesis", dir: "auto" },
      translation || "(empty)", element("span", { className: "score", textContent: `score ${score.toFixed(2)}` }));
    return element("div", { className: "pair" }, element("p", { className: "soft", textContent: source, dir: "auto" }), ...texts.map(hypothesis));
  })),
  classes: (classes) => result.replaceChildren(...classes.slice(0, 10).map(([label, probability]) => {
    const bar = element("span", { className: "bar", textContent: `${(100 * probability).toFixed(1)}%` });
    bar.style.setProperty("--fraction", probability);
    return element("div", { className: "class" }, element("span", { textContent: label }), bar);
  })),
  example: ({ text: content, reference }) => {
    // A prompt leaves part of the context free.
    text.value = command() === "generate" ? content.slice(0, 40) : content;
    example = { text: text.value, reference };
    if (reference) events.note(`reference: ${reference}`);
  },
  attention: (id) => openPage(find("#attention"), `attention/${id}`),
  error: (message) => fail(message),
  done: ([model, seconds]) => setText(find("#done"), `${model}; ${seconds.toFixed(2)} s`),
};

let hasFailed = false;
function fail(message) {
  hasFailed = true;
  show(find("#failure"), true);
  setText(find("#failure"), message.startsWith("error: ") ? message : `error: ${message}`);
}

let current = null;
/** The last example of the data, and the number of the next one of each run. */
let example = null;
const numbers = new Map();

/** Sends the text, or a request for an example. Returns whether the server has answered without an error. */
async function infer(more = {}) {
  current?.abort();
  hasFailed = false;
  const controller = current = new AbortController();
  show(find("#failure"), false);
  show(find("#stop"), true);
  notes.replaceChildren();
  result.replaceChildren();
  setText(find("#done"), "");
  show(find("#attention"), false);
  events.status("waiting");
  if (example?.reference && example.text === text.value && !more.example) events.note(`reference: ${example.reference}`);
  try {
    const body = { run: select.value, text: text.value, decoding: decoding(), ...more };
    const response = await request("api/infer", body, controller.signal);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) for (const [name, content] of Object.entries(JSON.parse(line))) events[name](content);
    }
  } catch (error) {
    // Another request has replaced this one.
    if (current !== controller) return true;
    if (controller.signal.aborted) events.note("stopped");
    else fail(error instanceof ServerError ? error.message : "the server does not answer; start zoo serve again");
  }
  if (current !== controller) return true;
  current = null;
  show(find("#stop"), false);
  status.classList.remove("busy");
  setText(status, "");
  return !hasFailed;
}

async function showExample() {
  const run = select.value, number = (numbers.get(run) ?? 0) + 1;
  numbers.set(run, number);
  if (await infer({ run, example: number, text: "" })) return;
  numbers.delete(run);
  // The first example comes after the last.
  if (number > 1 && select.value === run) await showExample();
}

form.addEventListener("submit", (event) => { event.preventDefault(); infer(); });
text.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
});
find("#example").addEventListener("click", showExample);
find("#stop").addEventListener("click", () => current?.abort());
select.addEventListener("change", renderCommand);
form.elements.strategy.addEventListener("change", renderStrategy);
renderStrategy();
refresh();
