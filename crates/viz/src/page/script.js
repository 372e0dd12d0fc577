// Draws the heatmaps of a page and shows tooltips.

const dark = matchMedia("(prefers-color-scheme: dark)");
const tip = document.querySelector(".tip");
let tipTarget = null;

// Colour of a value from -1 to 1.
function colour(value) {
  const ramp = RAMPS[dark.matches ? "dark" : "light"][value < 0 ? 1 : 0];
  const position = Math.min(Math.abs(value), 1) * (ramp.length - 1);
  const from = Math.min(Math.floor(position), ramp.length - 2);
  return ramp[from].map((low, i) => Math.round(low + (position - from) * (ramp[from + 1][i] - low)));
}

// One pixel per cell; CSS scales the canvas. `value(row, column)` is from -1 to 1.
function paint(canvas, columns, rows, value) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  // Colours are looked up in 255 steps each way, since pages may have millions of cells.
  const colours = new Uint32Array(511);
  const bytes = new Uint8Array(colours.buffer);
  for (let i = 0; i < 511; i++) bytes.set([...colour((i - 255) / 255), 255], 4 * i);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      pixels[row * columns + column] = colours[255 + Math.round(255 * Math.max(-1, Math.min(1, value(row, column))))];
    }
  }
  context.putImageData(image, 0, 0);
}

// Weights are 16-bit little-endian integers over their range.
function decode(element) {
  const low = Number(element.dataset.low);
  const step = (Number(element.dataset.high) - low) / 65535;
  const bytes = atob(element.textContent);
  const weights = new Float32Array(bytes.length / 2);
  for (let i = 0; i < weights.length; i++) {
    weights[i] = low + step * (bytes.charCodeAt(2 * i) + 256 * bytes.charCodeAt(2 * i + 1));
  }
  return weights;
}

function mean(matrices) {
  return matrices[0].map((_, i) => matrices.reduce((sum, matrix) => sum + matrix[i], 0) / matrices.length);
}

const maxAbs = (weights) => weights.reduce((max, weight) => Math.max(max, Math.abs(weight)), 0);
const format = (weight) => weight.toFixed(4).replace(/^-(0\.0+)$/, "$1");

// Shows a tooltip next to an element, inside of the window.
function showTip(text, element) {
  tip.textContent = text;
  tip.hidden = false;
  tipTarget = element;
  const rectangle = element.getBoundingClientRect();
  const box = tip.getBoundingClientRect();
  const right = rectangle.right + 10;
  const left = right + box.width < innerWidth ? right : Math.max(4, rectangle.left - box.width - 10);
  tip.style.left = `${left}px`;
  tip.style.top = `${Math.max(4, Math.min(rectangle.top, innerHeight - box.height - 4))}px`;
}

// End of the shared colour scale, and whether larger weights have the same colour. In long texts, a
// few rows would make all others pale: the first query of causal attention has a single key.
function sharedScale(matrices, columns) {
  const largest = matrices.flatMap((matrix) => Array.from({ length: matrix.length / columns }, (_, row) => maxAbs(matrix.subarray(row * columns, (row + 1) * columns))));
  largest.sort((a, b) => a - b);
  const max = largest.at(-1), most = largest[Math.floor(0.95 * (largest.length - 1))];
  return largest.length >= 100 && most > 0 && most < max / 2 ? [most, true] : [max, false];
}

// Token and position, counted from 1; the position of a selected query is not its index.
const tokenName = (label, i) => `${label.textContent} (${label.dataset.position ?? i + 1})`;

const MAX_LINES = 4000;

// More keys than this are shown as a text instead of a row.
const MAX_KEYS = 300;

// The keys as a text, coloured by the weights of one query: the last, or that of the row of the
// heatmap that was pointed at.
function initText(links, keys, queries) {
  const text = Object.assign(document.createElement("p"), { className: "key-text", dir: "auto" });
  const words = keys.map((label) => Object.assign(document.createElement("span"), { className: "word", textContent: label.textContent }));
  text.append(...words.flatMap((word) => [word, document.createElement("wbr")]));
  links.querySelector("svg").replaceWith(text);
  const title = links.querySelector("p");
  let weights = [], current = queries.length - 1;

  function paint() {
    title.textContent = `Weights of the query ${tokenName(queries[current], current)}, relative to the largest. Point at a row of the heatmap to see another query.`;
    const row = weights.subarray(current * keys.length, (current + 1) * keys.length), max = maxAbs(row) || 1;
    for (const [i, word] of words.entries()) word.style.setProperty("--product", Math.abs(row[i] / max).toFixed(3));
  }
  text.addEventListener("pointerover", (event) => {
    const key = words.indexOf(event.target);
    if (key >= 0) showTip(`${tokenName(queries[current], current)} → ${tokenName(keys[key], key)}\n${format(weights[current * keys.length + key])}`, event.target);
  });
  text.addEventListener("pointerleave", () => { tip.hidden = true; });
  return {
    highlight(row) { if (row !== null && row !== current) { current = row; paint(); } },
    draw(_, newWeights) { weights = newWeights; paint(); },
  };
}

// Keys above, queries below, and lines between them.
function initLinks(links, keys, queries) {
  if (keys.length > MAX_KEYS) return initText(links, keys, queries);
  const svg = links.querySelector("svg");
  const element = (name, attributes, text) => {
    const created = document.createElementNS(svg.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value);
    if (text !== undefined) created.textContent = text;
    return created;
  };
  const measure = document.createElement("canvas").getContext("2d");
  measure.font = "13px system-ui, sans-serif";
  const short = (text) => ([...text].length > 14 ? `${[...text].slice(0, 13).join("")}…` : text);
  const lay = (labels) => {
    let end = 0;
    const tokens = labels.map((label, index) => {
      const text = short(label.textContent), cell = Math.max(measure.measureText(text).width + 14, 24);
      end += cell;
      return { text, index, x: end - cell / 2 };
    });
    return { tokens, end };
  };
  const above = lay(keys), below = lay(queries), end = Math.max(above.end, below.end);
  // Centred, so that a monotonic alignment is vertical.
  for (const row of [above, below]) for (const token of row.tokens) token.x += (end - row.end) / 2;
  const TOP = 22, BOTTOM = 132;
  svg.setAttribute("width", end);
  svg.setAttribute("height", 154);
  const lines = element("g", {});
  svg.append(lines);
  for (const [side, { tokens }, y] of [["key", above, TOP], ["query", below, BOTTOM + 4]]) {
    for (const token of tokens) {
      const text = element("text", { x: token.x.toFixed(1), y }, token.text);
      text.addEventListener("pointerenter", () => point(side, token.index, text));
      text.addEventListener("pointerleave", () => { tip.hidden = true; highlight(null, null); });
      svg.append(text);
    }
  }
  let value = () => 0, weights = [], shown = [null, null];

  function drawLines(rows, columns) {
    const found = [];
    for (const row of rows) {
      for (const column of columns) {
        const size = Math.abs(value(row, column));
        // Weaker ones would only be noise.
        if (size >= 0.05) found.push({ row, column, size: Math.min(size, 1) });
      }
    }
    found.sort((a, b) => b.size - a.size);
    const paths = found.slice(0, MAX_LINES).map(({ row, column, size }) => {
      const x1 = above.tokens[column].x.toFixed(1), x2 = below.tokens[row].x.toFixed(1);
      const [y1, y2] = [TOP + 6, BOTTOM - 14], middle = (y1 + y2) / 2;
      return element("path", {
        d: `M${x1} ${y1}C${x1} ${middle} ${x2} ${middle} ${x2} ${y2}`, "stroke-opacity": (0.15 + 0.85 * size).toFixed(2), "stroke-width": (0.6 + 3.4 * size).toFixed(1),
        ...(weights[row * keys.length + column] < 0 ? { class: "negative" } : {}),
      });
    });
    lines.replaceChildren(...paths);
  }

  const all = (labels) => labels.map((_, i) => i);
  // Shows only the lines of a query or of a key; of all with neither.
  function highlight(row, column) {
    if (shown[0] === row && shown[1] === column) return;
    shown = [row, column];
    drawLines(row === null ? all(queries) : [row], column === null ? all(keys) : [column]);
  }

  // The strongest weights of a token.
  function point(side, index, text) {
    if (side === "query") highlight(index, null); else highlight(null, index);
    const others = side === "query" ? keys : queries;
    const at = (i) => (side === "query" ? weights[index * keys.length + i] : weights[i * keys.length + index]);
    const strongest = all(others).sort((a, b) => Math.abs(at(b)) - Math.abs(at(a))).slice(0, 5);
    const name = tokenName((side === "query" ? queries : keys)[index], index);
    showTip([`${side} ${name}`, ...strongest.map((i) => `${format(at(i))} ${tokenName(others[i], i)}`)].join("\n"), text);
  }

  return {
    highlight,
    draw(newValue, newWeights) { value = newValue; weights = newWeights; shown = [undefined, undefined]; highlight(null, null); },
  };
}

function initHeatmap(part) {
  const find = (selector) => part.querySelector(selector);
  const map = find(".map"), cells = find(".cells"), cursor = find(".cursor"), status = find("[role=status]");
  const queries = [...find(".queries").children], keys = [...find(".keys").children];
  const rows = queries.length, columns = keys.length;
  const layer = find("select.layer"), head = find("select.head"), scale = find("select.colour-scale"), gamma = find(".gamma"), size = find(".size");
  const buttons = [...part.querySelectorAll(".overview button")];
  const layers = [];
  for (const element of part.querySelectorAll(".weights")) {
    (layers[element.dataset.layer] ||= [])[element.dataset.head] = decode(element);
  }
  const [sharedMax, isClipped] = sharedScale(layers.flat(), columns);
  let weights, cell = null;
  const links = initLinks(find(".links"), keys, queries);

  // Rows stay readable if there are few of them.
  const width = () => Number(size.value), height = () => Math.max(width(), rows <= 64 ? 16 : 0);

  const selection = () => (!head ? "" : `layer ${Number(layer.value) + 1}, ${head.value === "mean" ? "mean of all heads" : `head ${Number(head.value) + 1}`}`);

  // Weight at the end of the colour scale; never zero, since it is a divisor.
  function scaleMax(matrix, row, mode) {
    if (mode === "shared") return sharedMax || 1;
    return (mode === "row" ? maxAbs(matrix.subarray(row * columns, (row + 1) * columns)) : maxAbs(matrix)) || 1;
  }

  // Gamma 1/2 makes small weights visible and keeps their order.
  const gammaCorrected = (value) => (gamma.checked ? Math.sign(value) * Math.sqrt(Math.abs(value)) : value);

  function paintMatrix(canvas, matrix) {
    const max = scale.value === "row" ? null : scaleMax(matrix, 0, scale.value);
    const rowMax = Array.from({ length: rows }, (_, row) => max ?? scaleMax(matrix, row, "row"));
    paint(canvas, columns, rows, (row, column) => gammaCorrected(matrix[row * columns + column] / rowMax[row]));
  }

  function drawOverview() {
    for (const button of buttons) {
      const canvas = button.querySelector("canvas");
      paintMatrix(canvas, layers[button.dataset.layer][button.dataset.head]);
      // The aspect ratio of the matrix, within limits.
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
    paint(find(".scale canvas"), 128, 1, (_, i) => gammaCorrected(below ? 2 * i / 127 - 1 : i / 127));
    links.draw((row, column) => weights[row * columns + column] / scaleMax(weights, row, scale.value), weights);
    const least = isClipped && scale.value === "shared" ? "≥ " : "";
    const end = scale.value === "row" ? "row max" : format(scaleMax(weights, 0, scale.value));
    find(".scale .min").textContent = below ? `-${end}` : "0";
    find(".scale .max").textContent = least + end;
    if (cell && !tip.hidden) describe(...cell);
  }

  function resize() {
    map.style.setProperty("--cell", `${width()}px`);
    map.style.setProperty("--row", `${height()}px`);
    find(".keys").classList.toggle("unlabelled", width() < 11);
    find(".queries").classList.toggle("unlabelled", height() < 11);
    cells.style.width = `${width() * columns}px`;
    cells.style.height = `${height() * rows}px`;
    if (cell) mark(...cell);
  }

  function mark(row, column) {
    cell = [row, column];
    for (const label of part.querySelectorAll(".active")) label.classList.remove("active");
    queries[row].classList.add("active");
    keys[column].classList.add("active");
    cursor.hidden = false;
    cursor.style.left = `${width() * column}px`;
    cursor.style.top = `${height() * row}px`;
    links.highlight(row, null);
  }

  function describe(row, column) {
    mark(row, column);
    const text = `${tokenName(queries[row], row)} → ${tokenName(keys[column], column)}\n${format(weights[row * columns + column])}`;
    showTip(selection() ? `${text}\n${selection()}` : text, cursor);
    return text;
  }

  function hideTip() {
    tip.hidden = true;
    cursor.hidden = true;
    links.highlight(null, null);
    for (const label of part.querySelectorAll(".active")) label.classList.remove("active");
  }

  // Scrolls a cell out from behind the sticky axes.
  function scrollTo(row, column) {
    const corner = find(".corner").getBoundingClientRect();
    const fit = (i, side, from, visible) => Math.min(Math.max(from, side * (i + 2) - visible), side * Math.max(i - 1, 0));
    map.scrollLeft = fit(column, width(), map.scrollLeft, map.clientWidth - corner.width);
    map.scrollTop = fit(row, height(), map.scrollTop, map.clientHeight - corner.height);
  }

  cells.addEventListener("pointermove", (event) => {
    const box = cells.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top) / height());
    const column = Math.floor((event.clientX - box.left) / width());
    if (row >= 0 && row < rows && column >= 0 && column < columns) describe(row, column);
  });
  cells.addEventListener("pointerleave", hideTip);
  map.addEventListener("blur", hideTip);
  map.addEventListener("focus", () => { if (map.matches(":focus-visible")) moveTo(...(cell || [0, 0])); });

  function moveTo(row, column) {
    scrollTo(row, column);
    status.textContent = describe(row, column);
  }

  map.addEventListener("keydown", (event) => {
    const [row, column] = cell || [0, 0];
    const to = {
      ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
      Home: [row, 0], End: [row, columns - 1], PageUp: [0, column], PageDown: [rows - 1, column],
    }[event.key];
    if (!to) { if (event.key === "Escape") hideTip(); return; }
    event.preventDefault();
    moveTo(Math.min(Math.max(to[0], 0), rows - 1), Math.min(Math.max(to[1], 0), columns - 1));
  });

  // All heads are one tab stop; arrow keys move between them.
  for (const [i, button] of buttons.entries()) {
    button.addEventListener("click", () => {
      layer.value = button.dataset.layer;
      draw();
      head.value = button.dataset.head;
      draw();
    });
    button.addEventListener("keydown", (event) => {
      const row = buttons.filter((other) => other.dataset.head === button.dataset.head);
      const next = {
        ArrowLeft: buttons[i - 1], ArrowRight: buttons[i + 1],
        ArrowUp: row[row.indexOf(button) - 1], ArrowDown: row[row.indexOf(button) + 1],
      }[event.key];
      if (!event.key.startsWith("Arrow")) return;
      event.preventDefault();
      if (next) { next.focus(); next.click(); }
    });
  }
  for (const select of [layer, head]) select?.addEventListener("change", draw);
  const render = () => { drawOverview(); draw(); };
  scale.addEventListener("change", render);
  gamma.addEventListener("change", render);
  dark.addEventListener("change", render);
  size.addEventListener("input", resize);
  resize();
  render();
}

function initDocument(part) {
  const list = part.querySelector(".sentences"), colourBy = part.querySelector("select.colour-by"), status = part.querySelector("[role=status]");
  const sentences = [...list.children].map((sentence) => [...sentence.querySelectorAll(".word")]);
  let current = null;

  function describe(row, column) {
    hideTip();
    current = [row, column];
    const word = sentences[row][column];
    word.classList.add("active");
    const unknown = word.classList.contains("unknown") ? " (not in the vocabulary)" : "";
    const text = `${word.textContent}${unknown}\n${word.dataset.weight} in sentence ${row + 1} (${list.children[row].dataset.weight})`;
    showTip(text, word);
    return text;
  }

  function hideTip() {
    for (const word of list.querySelectorAll(".active")) word.classList.remove("active");
    tip.hidden = true;
  }

  // The next non-empty sentence in a direction.
  function nextSentence(row, step) {
    let next = row + step;
    while (sentences[next] && !sentences[next].length) next += step;
    return sentences[next] ? next : row;
  }

  function moveTo(row, column) {
    if (!sentences[row]?.length) return;
    const index = Math.min(Math.max(column, 0), sentences[row].length - 1);
    sentences[row][index].scrollIntoView({ block: "nearest" });
    status.textContent = describe(row, index);
  }

  colourBy.addEventListener("change", () => part.classList.toggle("by-word", colourBy.value === "word"));
  list.addEventListener("pointermove", (event) => {
    const row = sentences.findIndex((words) => words.includes(event.target));
    if (row >= 0) describe(row, sentences[row].indexOf(event.target)); else hideTip();
  });
  list.addEventListener("pointerleave", hideTip);
  list.addEventListener("blur", hideTip);
  list.addEventListener("focus", () => { if (list.matches(":focus-visible")) moveTo(...(current || [nextSentence(-1, 1), 0])); });
  list.addEventListener("keydown", (event) => {
    const [row, column] = current || [nextSentence(-1, 1), 0];
    const to = {
      ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
      ArrowUp: [nextSentence(row, -1), column], ArrowDown: [nextSentence(row, 1), column],
      Home: [row, 0], End: [row, Infinity],
    }[event.key];
    if (!to) { if (event.key === "Escape") hideTip(); return; }
    event.preventDefault();
    moveTo(...to);
  });
}

for (const part of document.querySelectorAll(".part.heads, .part.alignment")) initHeatmap(part);
for (const part of document.querySelectorAll(".part.document")) initDocument(part);

// While scrolling, the tooltip follows its target, and is hidden with it.
addEventListener("scroll", () => {
  if (tip.hidden) return;
  const box = tipTarget.getBoundingClientRect();
  const around = (tipTarget.closest(".map") || document.documentElement).getBoundingClientRect();
  const inside = box.bottom > Math.max(around.top, 0) && box.top < Math.min(around.bottom, innerHeight) && box.right > around.left && box.left < around.right;
  if (inside) showTip(tip.textContent, tipTarget); else tip.hidden = true;
}, { capture: true, passive: true });
