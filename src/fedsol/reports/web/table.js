// Tables that sort by a click on a heading. A cell is text, or {text, value, note, best}: `value` is what is sorted.

function sortableTable(caption, headings, start = null) {
  const body = make("tbody");
  const row = make("tr");
  let rows = [];
  let order = start; // [column, 1 or -1]
  const cells = headings.map((heading, column) => {
    const button = make("button", { type: "button", onclick: () => sortBy(column) }, heading.text);
    const cell = make("th", { scope: "col", class: heading.number ? null : "text" }, button);
    row.append(cell);
    return { cell, button };
  });
  const table = make("table", { "aria-label": caption }, make("thead", {}, row), body);

  function sortBy(column) {
    const first = headings[column].number && !headings[column].lowFirst ? -1 : 1;
    order = [column, order && order[0] === column ? -order[1] : first];
    show();
  }

  function show() {
    const sorted = [...rows];
    if (order) sorted.sort((one, other) => order[1] * byValue(one[order[0]], other[order[0]], order[1]));
    cells.forEach(({ cell, button }, column) => {
      const direction = order && order[0] === column ? (order[1] > 0 ? "ascending" : "descending") : "none";
      cell.setAttribute("aria-sort", direction);
      button.textContent = typeof headings[column].text === "function" ? headings[column].text() : headings[column].text;
    });
    body.replaceChildren(...sorted.map((values) => make("tr", {}, values.map(tableCell))));
  }

  function tableCell(value, column) {
    const cell = typeof value === "object" && value !== null ? value : { text: value };
    const tag = column === 0 ? "th" : "td";
    const look = [headings[column].number ? "" : "text", cell.best ? "best" : "", headings[column].long ? "long" : ""];
    const attributes = { class: look.filter(Boolean).join(" ") || null, scope: column === 0 ? "row" : null };
    const note = cell.note ? make("span", { class: "warn" }, ` ${cell.note}`) : null;
    const line = cell.sample === undefined ? null : [sample(cell.sample), " "];
    return make(tag, attributes, line ?? [], String(cell.text), note);
  }

  return {
    node: make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, table),
    update(newRows) {
      rows = newRows;
      show();
    },
  };
}

// Without a value a row stands last, whichever way is sorted.
function byValue(one, other, direction) {
  const [left, right] = [one, other].map((cell) => (cell !== null && typeof cell === "object" ? cell.value : cell));
  const missing = (value) => value === null || value === undefined || value === "–";
  if (missing(left) || missing(right)) return direction * (missing(left) - missing(right));
  if (typeof left === "number" && typeof right === "number") return left - right;
  return String(left).localeCompare(String(right), "en", { numeric: true });
}
