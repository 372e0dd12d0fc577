// Sorts and filters the tables of a page.
(() => {
  "use strict";
  const UNITS = { us: 1e-6, ms: 1e-3, s: 1, B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3 };
  // `12.3 ms`, `1,024`, `26%`, `0.50 (0.48..0.53)`; NaN for other texts.
  function number(text) {
    const [, digits, unit] = text.match(/^([-+\d.,]+(?:e[-+]?\d+)?)\s?([A-Za-z]*)/) || [];
    return digits === undefined || digits === "-" ? NaN : Number(digits.replaceAll(",", "")) * (UNITS[unit] ?? 1);
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0], rows = [...body.rows];
    const headers = [...table.tHead.rows[0].cells];
    const text = (row, column) => row.cells[column].textContent.trim();
    const filter = table.closest(".table")?.querySelector("select.filter");

    // Bars of visible rows. A few slow mechanisms would make all other bars short.
    function drawBars() {
      for (const [column, header] of headers.entries()) {
        if (header.dataset.bar === undefined) continue;
        const visible = rows.filter((row) => !row.hidden).map((row) => [row, number(text(row, column))]);
        const values = visible.map(([, value]) => value).filter((value) => value > 0).sort((a, b) => a - b);
        const end = Math.min(values.at(-1), 4 * values[Math.floor(values.length / 2)]);
        for (const [row, value] of visible) row.cells[column].style.setProperty("--fraction", value > 0 ? Math.min(value / end, 1).toFixed(3) : 0);
      }
    }

    function sort(column, descending) {
      const keys = new Map(rows.map((row) => [row, number(text(row, column))]));
      const sign = descending ? -1 : 1;
      const compare = (a, b) => {
        const [x, y] = [keys.get(a), keys.get(b)];
        // Texts such as `-` and `TIMED OUT` are after the numbers, in either direction.
        if (Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1;
        return sign * (Number.isNaN(x) ? text(a, column).localeCompare(text(b, column)) : x - y);
      };
      body.append(...[...body.rows].sort(compare));
      for (const [i, header] of headers.entries()) {
        if (i === column) header.setAttribute("aria-sort", descending ? "descending" : "ascending");
        else header.removeAttribute("aria-sort");
      }
    }

    for (const [column, header] of headers.entries()) {
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: header.textContent });
      button.addEventListener("click", () => sort(column, header.getAttribute("aria-sort") === "ascending"));
      header.replaceChildren(button);
    }
    const select = () => {
      for (const row of rows) row.hidden = filter.value !== "" && text(row, 0) !== filter.value;
      drawBars();
    };
    filter?.addEventListener("change", select);
    const initial = headers.findIndex((header) => header.dataset.bar !== undefined);
    if (initial >= 0) sort(initial, false);
    if (filter) select(); else drawBars();
  }
})();
