// Sorts and filters the tables of a page, which are whole without it. What is shown is part of the
// address, so that it can be sent: #TABLE?sort=COLUMN-down&find=WORDS.
"use strict";
(() => {
  const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  const tables = [...document.querySelectorAll("table.sortable")];
  let finder = null;
  let shown = { table: "", sort: "", find: "" };

  // What a row is sorted by; null comes last in either direction.
  function keyOf(row, column, isNumber) {
    const cell = row.cells[column];
    if (isNumber) return "value" in cell.dataset ? Number(cell.dataset.value) : null;
    const text = cell.textContent.trim();
    return text === "" || text === "\u2013" ? null : text;
  }

  function sort(table, column, down) {
    const heads = [...table.tHead.rows[0].cells];
    const isNumber = heads[column].dataset.sort === "number";
    const compare = isNumber ? (a, b) => a - b : collator.compare;
    const rows = [...table.tBodies[0].rows].map((row) => [keyOf(row, column, isNumber), row]);
    rows.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return down ? compare(b, a) : compare(a, b);
    });
    table.tBodies[0].append(...rows.map(([, row]) => row));
    heads.forEach((head, place) => {
      if (place === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  }

  function find(words) {
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0, all = 0;
    for (const table of tables) {
      for (const row of table.tBodies[0].rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !wanted.every((word) => text.includes(word));
        found += !row.hidden;
        ++all;
      }
    }
    finder.count.textContent = wanted.length ? `${found} of ${all} rows` : "";
  }

  function remember(change) {
    shown = { ...shown, ...change };
    const state = new URLSearchParams();
    if (shown.sort) state.set("sort", shown.sort);
    if (shown.find) state.set("find", shown.find);
    const text = state.toString();
    history.replaceState(null, "", `#${shown.table}${text ? `?${text}` : ""}`);
  }

  function follow() {
    const [anchor, state] = location.hash.slice(1).split("?");
    const wanted = new URLSearchParams(state ?? "");
    shown = { table: anchor, sort: wanted.get("sort") ?? "", find: wanted.get("find") ?? "" };
    const target = document.getElementById(anchor);
    const [, key, down] = /^(.*?)(-down)?$/.exec(shown.sort);
    const table = tables.find((each) => each === target);
    const column = table ? [...table.tHead.rows[0].cells].findIndex((head) => head.dataset.key === key) : -1;
    if (column >= 0) sort(table, column, Boolean(down));
    if (finder) {
      finder.input.value = shown.find;
      find(shown.find);
    }
    if (state !== undefined && target) target.scrollIntoView();
  }

  document.documentElement.classList.add("scripted");
  for (const table of tables) {
    for (const head of table.tHead.rows[0].cells) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        // Numbers begin with the largest, words with "a".
        const first = head.dataset.sort === "number" ? "descending" : "ascending";
        const now = head.getAttribute("aria-sort");
        const down = now === null ? first === "descending" : now === "ascending";
        sort(table, head.cellIndex, down);
        remember({ table: table.id, sort: `${head.dataset.key}${down ? "-down" : ""}` });
      });
    }
  }

  if (tables.some((table) => table.tBodies[0].rows.length > 1)) {
    const box = document.createElement("p");
    box.className = "finder";
    box.innerHTML =
      "<label>Filter rows <input type='search' placeholder='words, in any order' spellcheck='false'>" +
      "</label> <span role='status' class='quiet'></span>";
    finder = { input: box.querySelector("input"), count: box.querySelector("span") };
    finder.input.addEventListener("input", () => {
      find(finder.input.value);
      remember({ find: finder.input.value.trim() });
    });
    document.querySelector("section").before(box);
  }
  window.addEventListener("hashchange", follow);
  follow();
})();
