// Draws the charts of a page with uPlot.
(() => {
  "use strict";
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
  // Blue, orange, green, pink, violet, brown, grey: distinguishable without red and green.
  const HUES = [[207, 85], [24, 90], [164, 80], [325, 55], [265, 55], [40, 80], [0, 0]];
  const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [1, 5]];
  const FONT = "12px system-ui, sans-serif";
  // The margin has the axis below the plot.
  const HEIGHT = 380, LABEL = 14, MARGIN = 60;

  const colour = ({ hue, shade }) => {
    const [h, saturation] = HUES[hue % HUES.length];
    const [from, to] = dark.matches ? [86, 46] : [20, 62];
    return `hsl(${h} ${saturation}% ${from + (to - from) * shade}%)`;
  };

  const paintSwatch = (swatch, line) => {
    swatch.style.setProperty("--swatch", colour(line));
    swatch.classList.toggle("dashed", line.stroke % DASHES.length > 0);
  };

  const three = (x) => x.toFixed(Math.abs(x) < 9.995 ? 2 : Math.abs(x) < 99.95 ? 1 : 0);
  const scaled = (x, [first, ...units], step) => {
    let unit = first;
    while (units.length && x >= step) { x /= step; unit = units.shift(); }
    return `${three(x)} ${unit}`;
  };
  const FORMATS = {
    number: (x) => (x === 0 ? "0" : Math.abs(x) >= 1e6 || Math.abs(x) < 1e-4 ? x.toExponential(2) : Number(x.toPrecision(4)).toLocaleString("en")),
    count: (x) => Math.round(x).toLocaleString("en"),
    seconds: (x) => scaled(x * 1e6, ["us", "ms", "s"], 1000),
    bytes: (x) => scaled(x, ["B", "KiB", "MiB", "GiB", "TiB"], 1024),
  };
  const tick = (unit) => (x) => FORMATS[unit](x).replace(/\.0+(?= |$)/, "");

  // Round values of a log axis, at most eight; round steps if that range has fewer than three.
  function logTicks(min, max, base) {
    let ticks = [];
    for (let power = Math.floor(Math.log(min) / Math.log(base)); base ** power <= max; power++) {
      for (const step of base === 10 ? [1, 2, 5] : [1]) ticks.push(step * base ** power);
    }
    ticks = ticks.filter((x) => x >= min && x <= max);
    if (ticks.length < 3) {
      const size = 10 ** Math.floor(Math.log10((max - min) / 4)), step = size * [1, 2, 5, 10].find((x) => x * size >= (max - min) / 5);
      ticks = Array.from({ length: Math.floor(max / step) - Math.ceil(min / step) + 1 }, (_, i) => (Math.ceil(min / step) + i) * step);
    }
    const every = Math.ceil(ticks.length / 8);
    return ticks.filter((_, i) => i % every === 0);
  }

  // Labels are moved apart, from the top down, and up again where they would leave the plot. They
  // overlap if the plot is too low for all of them.
  function dodge(labels, top, bottom) {
    const step = Math.min(LABEL, (bottom - top) / Math.max(1, labels.length - 1));
    labels.sort((a, b) => a.y - b.y);
    let limit = top;
    for (const label of labels) { label.y = Math.max(label.y, limit); limit = label.y + step; }
    limit = bottom;
    for (const label of [...labels].reverse()) { label.y = Math.min(label.y, limit); limit = label.y - step; }
  }

  function draw(figure) {
    const data = JSON.parse(figure.querySelector(".chart-data").textContent);
    const area = figure.querySelector(".chart-area");
    data.lines = data.lines.filter((line) => line.points.length);
    if (!data.lines.length) {
      area.replaceChildren(Object.assign(document.createElement("p"), { className: "chart-empty", textContent: data.empty }));
      return null;
    }
    // uPlot takes one list of x values, and a value or null of each line for each of them.
    const xs = [...new Set(data.lines.flatMap((line) => line.points.map(([x]) => x)))].sort((a, b) => a - b);
    // uPlot would choose a range of its own for a single value.
    if (xs.length === 1 && data.x.include !== null && data.x.include < xs[0]) xs.unshift(data.x.include);
    const column = (points, i) => { const values = new Map(points.map((point) => [point[0], point[i]])); return xs.map((x) => values.get(x) ?? null); };
    const columns = data.lines.map((line) => column(line.points, 1));
    const bands = [];
    const series = data.lines.map((line, i) => ({
      label: line.name, scale: "y", spanGaps: true, width: line.strong ? 3 : 1.75, dash: DASHES[line.stroke % DASHES.length],
      stroke: () => colour(line), points: { show: line.markers, size: line.strong ? 8 : 6, fill: () => colour(line) }, index: i,
    }));
    // The ends of a band are lines of their own.
    for (const [i, line] of data.lines.entries()) {
      if (!line.band.length) continue;
      bands.push({ series: [series.length + 2, series.length + 1], fill: () => colour(line).replace(")", " / .18)") });
      for (const end of [1, 2]) {
        columns.push(column(line.band, end));
        series.push({ label: "", scale: "y", spanGaps: true, width: 0, points: { show: false }, index: i, isBand: true });
      }
    }
    const measure = document.createElement("canvas").getContext("2d");
    measure.font = FONT;
    const chartHeight = Math.max(HEIGHT, LABEL * data.lines.length + MARGIN);
    const labelWidth = Math.min(170, 22 + Math.max(...data.lines.map((line) => measure.measureText(line.name).width)));
    const range = ({ log, margin, include }) => (u, min, max) => {
      if (min === null) return [1, 10];
      if (include !== null) { min = Math.min(min, include); max = Math.max(max, include); }
      const pad = log ? (max / min) ** margin : (max - min) * margin;
      if (log) return min === max ? [min / 1.6, max * 1.6] : [min / pad, max * pad];
      const half = Math.abs(min) / 10 || 0.5;
      return min === max ? [min - half, max + half] : [min - pad, max + pad];
    };
    const scale = (axis) => ({ time: false, distr: axis.log ? 3 : 1, log: axis.log ?? 10, range: range(axis) });
    const axis = (from, extra) => ({
      stroke: () => css("--soft"), font: FONT, grid: { stroke: () => css("--line"), width: 1 }, ticks: { show: false },
      values: (_, splits) => splits.map((x) => (x === null ? null : tick(from.unit)(x))), ...extra,
    });
    const tip = Object.assign(document.createElement("div"), { className: "chart-tip", hidden: true });

    // Line names to the right of the last points.
    function drawLabels(u) {
      const { ctx } = u, ratio = devicePixelRatio, { left, top, width, height } = u.bbox, labels = [];
      for (const [i, one] of u.series.entries()) {
        if (!i || !one.show || one.isBand) continue;
        const last = u.data[i].findLastIndex((value, j) => value !== null && xs[j] >= u.scales.x.min && xs[j] <= u.scales.x.max);
        if (last < 0) continue;
        const y = u.valToPos(u.data[i][last], "y");
        if (y < -1 || y > height / ratio + 1) continue;
        labels.push({ x: u.valToPos(xs[last], "x"), from: y, y, line: data.lines[one.index] });
      }
      dodge(labels, 2, height / ratio - 2);
      ctx.save();
      ctx.setTransform(ratio, 0, 0, ratio, left, top);
      ctx.font = FONT;
      ctx.textBaseline = "middle";
      ctx.textAlign = "left";
      for (const { x, from, y, line } of labels) {
        const edge = width / ratio;
        ctx.strokeStyle = colour(line);
        ctx.globalAlpha = 0.55;
        ctx.setLineDash(x < edge - 14 ? [1, 3] : []);
        ctx.lineWidth = 1;
        ctx.beginPath();
        ctx.moveTo(x + 4, from);
        ctx.lineTo(edge + 2, from);
        ctx.lineTo(edge + 10, y);
        ctx.stroke();
        ctx.globalAlpha = 1;
        ctx.fillStyle = css("--ink");
        ctx.font = line.strong ? `600 ${FONT}` : FONT;
        let name = line.name;
        while (name.length > 4 && ctx.measureText(name).width > labelWidth - 14) name = `${name.replace(/…$/, "").slice(0, -1)}…`;
        ctx.fillText(name, edge + 13, y);
      }
      ctx.restore();
    }

    // The values of visible lines at the cursor, largest first, around the nearest one.
    function showTip(u) {
      const { idx, left, top } = u.cursor;
      tip.hidden = idx === null || idx === undefined || left < 0;
      if (tip.hidden) return;
      const rows = [];
      for (const [i, one] of u.series.entries()) {
        const value = i && one.show && !one.isBand ? u.data[i][idx] : null;
        if (value !== null) rows.push({ line: data.lines[one.index], value, distance: Math.abs(u.valToPos(value, "y") - top) });
      }
      if (!rows.length) { tip.hidden = true; return; }
      rows.sort((a, b) => b.value - a.value);
      const nearest = rows.reduce((best, row) => (row.distance < best.distance ? row : best));
      const first = Math.max(0, Math.min(rows.indexOf(nearest) - 4, rows.length - 9));
      const table = document.createElement("table");
      for (const row of rows.slice(first, first + 9)) {
        const line = table.insertRow();
        line.className = row === nearest ? "nearest" : "";
        const swatch = Object.assign(document.createElement("span"), { className: "chart-swatch" });
        paintSwatch(swatch, row.line);
        line.insertCell().append(swatch, ` ${row.line.name}`);
        line.insertCell().textContent = FORMATS[data.y.unit](row.value);
      }
      const head = document.createElement("div");
      head.textContent = `${data.x.title} = ${FORMATS[data.x.unit](xs[idx])}`;
      const foot = document.createElement("div");
      foot.textContent = nearest.line.note ? `${nearest.line.name}: ${nearest.line.note}` : "";
      tip.replaceChildren(head, table, foot);
      const over = u.over.getBoundingClientRect(), box = figure.getBoundingClientRect();
      const x = over.left - box.left + left, y = over.top - box.top + top;
      const right = x + 16 + tip.offsetWidth;
      tip.style.left = `${Math.max(0, right <= box.width ? x + 16 : x - 16 - tip.offsetWidth)}px`;
      tip.style.top = `${Math.max(0, Math.min(y - tip.offsetHeight / 2, box.height - tip.offsetHeight))}px`;
    }

    const chart = new uPlot({
      width: area.clientWidth || 480, height: chartHeight, legend: { show: false }, padding: [8, labelWidth, 0, 0], bands,
      scales: { x: scale(data.x), y: scale(data.y) },
      series: [{}, ...series],
      axes: [
        axis(data.x, { label: data.x.title, labelFont: FONT, labelSize: 22, size: 26, space: 44, ...(data.x.ticks ? { splits: (u) => xs.filter((x) => x >= u.scales.x.min && x <= u.scales.x.max), filter: (u, splits) => spaced(u, splits) } : {}) }),
        axis(data.y, { scale: "y", size: 64, space: 34, ...(data.y.log ? { splits: (u) => logTicks(u.scales.y.min, u.scales.y.max, data.y.log), filter: (u, splits) => splits } : {}) }),
      ],
      focus: { alpha: 0.25 },
      cursor: { focus: { prox: 26 }, drag: { x: true, y: true, uni: 20 }, points: { size: 9 } },
      hooks: { draw: [drawLabels], setCursor: [showTip] },
    }, [xs, ...columns], area);
    // Tick labels that would overlap are left out.
    function spaced(u, splits) {
      let last = -Infinity;
      return splits.map((x) => { const position = u.valToPos(x, "x"); if (position - last < 44) return null; last = position; return x; });
    }
    figure.append(tip);
    new ResizeObserver(() => { if (area.clientWidth && area.clientWidth !== chart.width) chart.setSize({ width: area.clientWidth, height: chartHeight }); }).observe(area);
    return { chart, lines: data.lines };
  }

  // Repaints the groups that are on the page, in the colours of the theme.
  let groups = [];
  dark.addEventListener("change", () => { for (const { paint, charts } of groups) { paint(); for (const { chart } of charts) chart.setData(chart.data, false); } });

  function drawGroup(group) {
    const charts = [...group.querySelectorAll(".chart")].map(draw).filter(Boolean);
    const toggles = [...group.querySelectorAll(".chart-toggle")];
    const line = (name) => charts.flatMap(({ lines }) => lines).find((one) => one.name === name);
    const isOn = (button) => button.getAttribute("aria-pressed") === "true";

    function update() {
      const shown = new Set(toggles.filter(isOn).map((button) => button.dataset.name));
      for (const { chart, lines } of charts) {
        chart.batch(() => {
          for (const [i, one] of chart.series.entries()) {
            const show = i === 0 || shown.has(lines[one.index].name);
            if (i && one.show !== show) chart.setSeries(i, { show });
          }
        });
      }
      for (const heading of group.querySelectorAll(".chart-toggle-group")) {
        const members = [...heading.parentElement.querySelectorAll(".chart-toggle")];
        heading.setAttribute("aria-pressed", members.some(isOn));
      }
    }
    const set = (button, on) => button.setAttribute("aria-pressed", on);
    for (const button of toggles) {
      button.addEventListener("click", () => { set(button, !isOn(button)); update(); });
      button.addEventListener("dblclick", () => { for (const other of toggles) set(other, other === button); update(); });
      const focus = (on) => { for (const { chart, lines } of charts) { const i = chart.series.findIndex((one, j) => j && lines[one.index].name === button.dataset.name); if (i > 0) chart.setSeries(on ? i : null, { focus: true }); } };
      button.addEventListener("pointerenter", () => focus(true));
      button.addEventListener("pointerleave", () => focus(false));
    }
    for (const heading of group.querySelectorAll(".chart-toggle-group")) {
      heading.addEventListener("click", () => {
        const on = !isOn(heading);
        for (const button of heading.parentElement.querySelectorAll(".chart-toggle")) set(button, on);
        update();
      });
    }
    const paint = () => {
      for (const button of toggles) { const one = line(button.dataset.name); if (one) paintSwatch(button.querySelector(".chart-swatch"), one); else button.hidden = true; }
    };
    paint();
    groups.push({ group, paint, charts });
  }

  // Also for charts that a page adds later.
  window.drawCharts = (root) => {
    const isShown = ({ group }) => group.isConnected;
    for (const { charts } of groups.filter((it) => !isShown(it))) for (const { chart } of charts) chart.destroy();
    groups = groups.filter(isShown);
    for (const group of root.querySelectorAll(".charts")) drawGroup(group);
  };
  window.drawCharts(document);
})();
