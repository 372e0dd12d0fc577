// Draws the weights of a page, and tells the one that is pointed at.

const dark = matchMedia("(prefers-color-scheme: dark)");
const tip = document.querySelector(".tip");
let pointedAt = null;

// The colour of a share from -1 to 1.
function shade(share) {
  const ramp = RAMPS[dark.matches ? "dark" : "light"][share < 0 ? 1 : 0];
  const place = Math.min(Math.abs(share), 1) * (ramp.length - 1);
  const from = Math.min(Math.floor(place), ramp.length - 2);
  return ramp[from].map((low, at) => Math.round(low + (place - from) * (ramp[from + 1][at] - low)));
}

// One pixel a cell; the style sheet makes them large.
function paint(canvas, columns, rows, share) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  // Some pages have millions of cells: their colours are looked up, in 255 steps each way.
  const colours = new Uint32Array(511);
  const bytes = new Uint8Array(colours.buffer);
  for (let at = 0; at < 511; at++) bytes.set([...shade((at - 255) / 255), 255], 4 * at);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      pixels[row * columns + column] = colours[255 + Math.round(255 * Math.max(-1, Math.min(1, share(row, column))))];
    }
  }
  context.putImageData(image, 0, 0);
}

// 16 bits a weight, the low byte first, in steps from the lowest to the highest.
function unpack(element) {
  const low = Number(element.dataset.low);
  const step = (Number(element.dataset.high) - low) / 65535;
  const bytes = atob(element.textContent);
  const weights = new Float32Array(bytes.length / 2);
  for (let at = 0; at < weights.length; at++) {
    weights[at] = low + step * (bytes.charCodeAt(2 * at) + 256 * bytes.charCodeAt(2 * at + 1));
  }
  return weights;
}

function mean(matrices) {
  return matrices[0].map((_, at) => matrices.reduce((sum, matrix) => sum + matrix[at], 0) / matrices.length);
}

const largest = (weights) => weights.reduce((most, weight) => Math.max(most, Math.abs(weight)), 0);
const written = (weight) => weight.toFixed(4).replace(/^-(0\.0+)$/, "$1");

// Beside an element, and inside of the window.
function showTip(text, element) {
  tip.textContent = text;
  tip.hidden = false;
  pointedAt = element;
  const rectangle = element.getBoundingClientRect();
  const box = tip.getBoundingClientRect();
  const right = rectangle.right + 10;
  const left = right + box.width < innerWidth ? right : Math.max(4, rectangle.left - box.width - 10);
  tip.style.left = `${left}px`;
  tip.style.top = `${Math.max(4, Math.min(rectangle.top, innerHeight - box.height - 4))}px`;
}

function setUpMap(part) {
  const find = (selector) => part.querySelector(selector);
  const map = find(".map"), cells = find(".cells"), cursor = find(".cursor"), status = find("[role=status]");
  const queries = [...find(".queries").children], keys = [...find(".keys").children];
  const rows = queries.length, columns = keys.length;
  const layer = find("select.layer"), head = find("select.head"), by = find("select.by"), lift = find(".lift"), size = find(".size");
  const buttons = [...part.querySelectorAll(".overview button")];
  const layers = [];
  for (const element of part.querySelectorAll(".weights")) {
    (layers[element.dataset.layer] ||= [])[element.dataset.head] = unpack(element);
  }
  const ofAll = Math.max(...layers.flat().map(largest));
  let weights, place = null;

  const chosen = () => (!head ? "" : `layer ${Number(layer.value) + 1}, ${head.value === "mean" ? "mean of its heads" : `head ${Number(head.value) + 1}`}`);

  // What the darkest cell of a row has; never zero, for it divides.
  function most(matrix, row, how) {
    if (how === "all") return ofAll || 1;
    return (how === "row" ? largest(matrix.subarray(row * columns, (row + 1) * columns)) : largest(matrix)) || 1;
  }

  // The root makes small ones visible, and keeps their order.
  const lifted = (share) => (lift.checked ? Math.sign(share) * Math.sqrt(Math.abs(share)) : share);

  function paintMatrix(canvas, matrix) {
    const whole = by.value === "row" ? null : most(matrix, 0, by.value);
    const scale = Array.from({ length: rows }, (_, row) => whole ?? most(matrix, row, "row"));
    paint(canvas, columns, rows, (row, column) => lifted(matrix[row * columns + column] / scale[row]));
  }

  function drawOverview() {
    for (const button of buttons) {
      const canvas = button.querySelector("canvas");
      paintMatrix(canvas, layers[button.dataset.layer][button.dataset.head]);
      // As wide as high where tokens are as many, and never a line.
      const ratio = Math.min(Math.max(rows / columns, 0.3), 1.6);
      canvas.style.width = "84px";
      canvas.style.height = `${Math.round(84 * ratio)}px`;
      canvas.style.imageRendering = Math.max(rows, columns) > 84 ? "auto" : "";
    }
  }

  function draw() {
    if (layer) {
      const heads = layers[layer.value];
      for (const option of head.options) option.hidden = option.disabled = option.value !== "mean" && !(option.value in heads);
      if (head.selectedOptions[0].disabled) head.value = "0";
      weights = head.value === "mean" ? mean(heads) : heads[head.value];
      for (const button of buttons) {
        const pressed = button.dataset.layer === layer.value && button.dataset.head === head.value;
        button.setAttribute("aria-pressed", pressed);
        button.tabIndex = pressed ? 0 : -1;
      }
      if (head.value === "mean") buttons[0].tabIndex = 0;
    } else {
      weights = layers[0][0];
    }
    paintMatrix(cells.querySelector("canvas"), weights);
    const below = weights.some((weight) => weight < 0);
    paint(find(".scale canvas"), 128, 1, (_, at) => lifted(below ? 2 * at / 127 - 1 : at / 127));
    const end = by.value === "row" ? "largest" : written(most(weights, 0, by.value));
    find(".scale .least").textContent = below ? `-${end}` : "0";
    find(".scale .most").textContent = end;
    if (place && !tip.hidden) tell(...place);
  }

  function resize() {
    map.style.setProperty("--cell", `${size.value}px`);
    cells.style.width = `${size.value * columns}px`;
    cells.style.height = `${size.value * rows}px`;
    if (place) mark(...place);
  }

  function mark(row, column) {
    place = [row, column];
    for (const label of part.querySelectorAll(".on")) label.classList.remove("on");
    queries[row].classList.add("on");
    keys[column].classList.add("on");
    cursor.hidden = false;
    cursor.style.left = `${size.value * column}px`;
    cursor.style.top = `${size.value * row}px`;
  }

  function tell(row, column) {
    mark(row, column);
    const named = (label, at) => `${label.textContent} (${at + 1})`;
    const text = `${named(queries[row], row)} → ${named(keys[column], column)}\n${written(weights[row * columns + column])}`;
    showTip(chosen() ? `${text}\n${chosen()}` : text, cursor);
    return text;
  }

  function forget() {
    tip.hidden = true;
    cursor.hidden = true;
    for (const label of part.querySelectorAll(".on")) label.classList.remove("on");
  }

  // Cells behind the axes would not be seen.
  function scrollTo(row, column) {
    const cell = Number(size.value), corner = find(".corner").getBoundingClientRect();
    const fit = (at, from, room) => Math.min(Math.max(from, cell * (at + 2) - room), cell * Math.max(at - 1, 0));
    map.scrollLeft = fit(column, map.scrollLeft, map.clientWidth - corner.width);
    map.scrollTop = fit(row, map.scrollTop, map.clientHeight - corner.height);
  }

  cells.addEventListener("pointermove", (event) => {
    const box = cells.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top) / size.value);
    const column = Math.floor((event.clientX - box.left) / size.value);
    if (row >= 0 && row < rows && column >= 0 && column < columns) tell(row, column);
  });
  cells.addEventListener("pointerleave", forget);
  map.addEventListener("blur", forget);
  map.addEventListener("focus", () => { if (map.matches(":focus-visible")) go(...(place || [0, 0])); });

  function go(row, column) {
    scrollTo(row, column);
    status.textContent = tell(row, column);
  }

  map.addEventListener("keydown", (event) => {
    const [row, column] = place || [0, 0];
    const to = {
      ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
      Home: [row, 0], End: [row, columns - 1], PageUp: [0, column], PageDown: [rows - 1, column],
    }[event.key];
    if (!to) { if (event.key === "Escape") forget(); return; }
    event.preventDefault();
    go(Math.min(Math.max(to[0], 0), rows - 1), Math.min(Math.max(to[1], 0), columns - 1));
  });

  // One stop of the tab key for all heads; arrows go from one to the next.
  for (const [at, button] of buttons.entries()) {
    button.addEventListener("click", () => {
      layer.value = button.dataset.layer;
      draw();
      head.value = button.dataset.head;
      draw();
    });
    button.addEventListener("keydown", (event) => {
      const row = buttons.filter((other) => other.dataset.head === button.dataset.head);
      const next = {
        ArrowLeft: buttons[at - 1], ArrowRight: buttons[at + 1],
        ArrowUp: row[row.indexOf(button) - 1], ArrowDown: row[row.indexOf(button) + 1],
      }[event.key];
      if (!event.key.startsWith("Arrow")) return;
      event.preventDefault();
      if (next) { next.focus(); next.click(); }
    });
  }
  for (const select of [layer, head]) select?.addEventListener("change", draw);
  const redraw = () => { drawOverview(); draw(); };
  by.addEventListener("change", redraw);
  lift.addEventListener("change", redraw);
  dark.addEventListener("change", redraw);
  size.addEventListener("input", resize);
  resize();
  redraw();
}

function setUpDocument(part) {
  const list = part.querySelector(".sentences"), by = part.querySelector("select.by"), status = part.querySelector("[role=status]");
  const sentences = [...list.children].map((sentence) => [...sentence.querySelectorAll(".word")]);
  let place = null;

  function tell(row, column) {
    forget();
    place = [row, column];
    const word = sentences[row][column];
    word.classList.add("on");
    const text = `${word.textContent}\n${word.dataset.weight} of sentence ${row + 1}, which has ${list.children[row].dataset.weight}`;
    showTip(text, word);
    return text;
  }

  function forget() {
    for (const word of list.querySelectorAll(".on")) word.classList.remove("on");
    tip.hidden = true;
  }

  // The next sentence that has words, in steps of one.
  function beside(row, step) {
    let next = row + step;
    while (sentences[next] && !sentences[next].length) next += step;
    return sentences[next] ? next : row;
  }

  function go(row, column) {
    if (!sentences[row]?.length) return;
    const at = Math.min(Math.max(column, 0), sentences[row].length - 1);
    sentences[row][at].scrollIntoView({ block: "nearest" });
    status.textContent = tell(row, at);
  }

  by.addEventListener("change", () => part.classList.toggle("both", by.value === "both"));
  list.addEventListener("pointermove", (event) => {
    const row = sentences.findIndex((words) => words.includes(event.target));
    if (row >= 0) tell(row, sentences[row].indexOf(event.target)); else forget();
  });
  list.addEventListener("pointerleave", forget);
  list.addEventListener("blur", forget);
  list.addEventListener("focus", () => { if (list.matches(":focus-visible")) go(...(place || [beside(-1, 1), 0])); });
  list.addEventListener("keydown", (event) => {
    const [row, column] = place || [beside(-1, 1), 0];
    const to = {
      ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
      ArrowUp: [beside(row, -1), column], ArrowDown: [beside(row, 1), column],
      Home: [row, 0], End: [row, Infinity],
    }[event.key];
    if (!to) { if (event.key === "Escape") forget(); return; }
    event.preventDefault();
    go(...to);
  });
}

for (const part of document.querySelectorAll(".part.heads, .part.alignment")) setUpMap(part);
for (const part of document.querySelectorAll(".part.document")) setUpDocument(part);

// What is pointed at moves, and may move out of sight.
addEventListener("scroll", () => {
  if (tip.hidden) return;
  const box = pointedAt.getBoundingClientRect();
  const around = (pointedAt.closest(".map") || document.documentElement).getBoundingClientRect();
  const inside = box.bottom > Math.max(around.top, 0) && box.top < Math.min(around.bottom, innerHeight) && box.right > around.left && box.left < around.right;
  if (inside) showTip(tip.textContent, pointedAt); else tip.hidden = true;
}, { capture: true, passive: true });
