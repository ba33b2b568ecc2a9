"use strict";
// Headers of sortable tables become buttons; without scripts the tables are read as they are.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const original = [...table.tBodies[0].rows];
  const key = (row, column) => {
    const text = row.cells[column].dataset.value;
    const number = Number(text);
    return text === "" || Number.isNaN(number) ? text : number;
  };
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const numbers = head.classList.contains("right");
      const first = numbers ? "descending" : "ascending";
      const second = numbers ? "ascending" : "descending";
      const now = head.getAttribute("aria-sort");
      const next = now === first ? second : now === second ? null : first;
      heads.forEach((one) => one.removeAttribute("aria-sort"));
      let rows = original;
      if (next) {
        head.setAttribute("aria-sort", next);
        const sign = next === "ascending" ? 1 : -1;
        rows = [...original].sort((a, b) => {
          const x = key(a, column), y = key(b, column);
          return sign * (x < y ? -1 : x > y ? 1 : 0);
        });
      }
      table.tBodies[0].append(...rows);
    });
  });
}
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => (one.open = true)));
