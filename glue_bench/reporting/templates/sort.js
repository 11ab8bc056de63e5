"use strict";
// The headings of tables become buttons that sort the rows: largest first, smallest first, as they were.
const NUMBER = /^[<>]?\s*([-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?)([kMBTPE]?)/;
const UNITS = { "": 1, k: 1e3, M: 1e6, B: 1e9, T: 1e12, P: 1e15, E: 1e18 };

function valueOf(row, column, isNumber) {
  const text = row.cells[column].textContent.trim();
  const match = isNumber && NUMBER.exec(text);
  return match ? Number(match[1].replaceAll(",", "")) * UNITS[match[2]] : isNumber ? null : text;
}

function compare(first, second) {
  return typeof first === "string" ? first.localeCompare(second, "en", { numeric: true }) : first - second;
}

function sorted(rows, column, isNumber, order) {
  const keyed = rows.map((row) => [valueOf(row, column, isNumber), row]);
  const sign = order === "ascending" ? 1 : -1;
  // What has no number stays below, whichever way the others go.
  const ranked = (a, b) => (a[0] === null) - (b[0] === null) || (a[0] === null ? 0 : sign * compare(a[0], b[0]));
  return keyed.sort(ranked).map(([, row]) => row);
}

function makeSortable(table) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const isNumber = heading.classList.contains("number");
    const orders = isNumber ? ["descending", "ascending"] : ["ascending", "descending"];
    const button = document.createElement("button");
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const order = orders[orders.indexOf(heading.getAttribute("aria-sort")) + 1];
      headings.forEach((each) => each.removeAttribute("aria-sort"));
      if (order) heading.setAttribute("aria-sort", order);
      body.append(...(order ? sorted(rows, column, isNumber, order) : rows));
    });
  });
}

document.querySelectorAll("table").forEach((table) => {
  if (table.tBodies[0].rows.length > 1) makeSortable(table);
});
