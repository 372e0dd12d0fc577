// Runs after the scripts of the report: hovers, toggles, sorts and filters, and records the results.
addEventListener("load", () => setTimeout(() => {
  const results = [];
  let before;
  const chart = document.querySelector(".chart"), over = chart.querySelector(".u-over");
  const hover = (fraction, height) => {
    const box = over.getBoundingClientRect();
    const point = { clientX: box.left + box.width * fraction, clientY: box.top + box.height * height, bubbles: true };
    over.dispatchEvent(new MouseEvent("mouseenter", point));
    over.dispatchEvent(new MouseEvent("mousemove", point));
  };
  const tip = () => { const { hidden } = chart.querySelector(".chart-tip"); return hidden ? "hidden" : chart.querySelector(".chart-tip div").textContent; };
  const nearest = () => [...chart.querySelector(".chart-tip .nearest").cells].map((cell) => cell.textContent.trim()).join(" ");
  const pixels = () => chart.querySelector("canvas").toDataURL();
  const button = (name) => [...document.querySelector(".charts").querySelectorAll("button")].find((one) => one.textContent === name);
  const table = document.querySelector("table.sortable"), rows = () => [...table.tBodies[0].rows].filter((row) => !row.hidden);
  const column = (name) => [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent === name);
  const cells = (name) => rows().map((row) => row.cells[column(name)].textContent);
  const steps = [
    () => hover(0.97, 0.02),
    () => { results.push(tip(), nearest()); button("grouped-query").click(); hover(0.97, 0.02); },
    () => { results.push(nearest()); before = pixels(); button("sparse softmax").click(); },
    () => {
      results.push(document.querySelectorAll(".charts .chart-toggle[aria-pressed=false]").length, pixels() !== before);
      button("flash").dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
      hover(0.97, 0.02);
    },
    () => {
      results.push(document.querySelector(".charts").querySelectorAll(".chart-toggle[aria-pressed=true]").length, chart.querySelectorAll(".chart-tip tr").length);
      over.dispatchEvent(new MouseEvent("mouseleave", { bubbles: true }));
    },
    () => {
      results.push(tip());
      const filter = document.querySelector("select.filter");
      results.push(filter.value, cells("mechanism")[0], rows().length);
      filter.value = "256"; filter.dispatchEvent(new Event("change"));
      const header = table.tHead.rows[0].cells[column("median")];
      header.querySelector("button").click();
      results.push(cells("mechanism")[0], header.getAttribute("aria-sort"));
      table.tHead.rows[0].cells[column("mechanism")].querySelector("button").click();
      results.push(cells("mechanism")[0], cells("mechanism").at(-1), header.hasAttribute("aria-sort"));
      filter.value = ""; filter.dispatchEvent(new Event("change"));
      header.querySelector("button").click(); header.querySelector("button").click();
      results.push(cells("median")[0], cells("median").at(-1));
      const shown = [...table.tHead.rows[0].cells].filter((cell) => cell.offsetWidth);
      results.push(innerWidth, shown.length, table.offsetWidth <= table.parentElement.clientWidth, document.documentElement.scrollWidth <= innerWidth);
      report(results);
    },
  ];
  // uPlot draws after the current task.
  const next = () => { const step = steps.shift(); if (step) { step(); setTimeout(next, 30); } };
  next();
}, 50));
