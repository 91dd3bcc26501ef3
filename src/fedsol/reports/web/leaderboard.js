// The leaderboard: tables as they come, one section each.

const board = JSON.parse(document.getElementById("data").textContent);
document.getElementById("about").textContent = board.about;

const tables = board.tables.map(({ id, title, note, headings, rows, start, fold }) => {
  const table = sortableTable(title, headings, start ?? null);
  table.update(rows);
  const shown = fold ? make("details", {}, make("summary", {}, `${rows.length} rows`), table.node) : table.node;
  const parts = [make("h2", { id: `${id}-title` }, title), shown, note ? make("p", { class: "note" }, note) : null];
  return make("section", { id, "aria-labelledby": `${id}-title` }, ...parts);
});
document.getElementById("main").replaceChildren(...tables);
const links = board.tables.map(({ id, title }) => make("a", { href: `#${id}` }, title));
document.getElementById("nav").replaceChildren(...links);
chooseTheme();
