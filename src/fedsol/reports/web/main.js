// Partition, settings, environment and commands; then the page itself, updated in a live view.

function partitionSection() {
  const { partitions, runs } = app.data;
  if (!partitions.length) return null;
  const nameFor = (number) => {
    const users = runs.filter((run) => run.partition === number);
    const seeds = [...new Set(users.map((run) => run.seed))];
    return `${users[0].dataset}, ${partitions[number].kind}, seed ${seeds.join(", ")}`;
  };
  if (view.partition >= partitions.length) view.partition = 0;
  const words = make("p", {});
  const map = heatMap(() => partitionMap(app.data.partitions[view.partition], namesFor(view.partition)));
  const update = () => {
    const { sizes, counts, sha256, heterogeneity } = app.data.partitions[view.partition];
    const held = (counts ?? []).map((row) => row.filter((count) => count > 0).length);
    const span = (values) => [...new Set([lowest(values), highest(values)])].join(" to ");
    const classes = classesIn({ counts }) ? `, ${span(held)} of ${counts[0].length} classes each` : "";
    const range = `${span(sizes)} training samples each`;
    const differ = heterogeneity ? ` ${heterogeneityText(heterogeneity, classesIn({ counts }))}` : "";
    words.textContent = `${plural(sizes.length, "client")} with ${range}${classes}.${differ} sha256 ${sha256.slice(0, 12)}…`;
    map.update();
  };
  const controls = make("div", { class: "controls" });
  if (partitions.length > 1) {
    const options = partitions.map((_, number) => [String(number), nameFor(number)]);
    const pick = (value) => {
      view.partition = Number(value);
      update();
    };
    controls.append(choice("partition", options, String(view.partition), pick, true));
  }
  const missing = "The classes of each client are unknown: partition.json was written by an older version.";
  const note = partitions.some(({ counts }) => counts) ? [] : [make("p", { class: "note" }, missing)];
  const below = partitions.some(classesIn) ? [scaleBar("no samples", "many")] : note;
  return { id: "partition", title: "Partition", node: [controls, words, map.node, ...below], update };
}

const namesFor = (partition) => app.data.runs.find((run) => run.partition === partition) ?? {};

// Samples of other tasks have no class: their manifest counts them as one.
const classesIn = ({ counts }) => (counts && counts[0].length > 1 ? counts[0].length : 0);

function heterogeneityText({ jensen_shannon, effective_classes, gini }, hasClasses) {
  const labels = `Jensen-Shannon distance ${jensen_shannon.toFixed(2)} from the labels of all clients (mean), ${effective_classes.toFixed(2)} effective classes per client, `;
  return `${hasClasses ? labels : ""}Gini coefficient of sizes ${gini.toFixed(2)}.`;
}

function partitionMap({ sizes, counts }, { class_names = [], client_names = [] }) {
  const className = (label) => class_names[label] ?? String(label);
  const client_ = (client) => client_names[client] ?? `client ${client}`;
  const classes = classesIn({ counts });
  const most = counts ? highest(counts.flat()) || 1 : 1;
  return {
    columns: sizes.length, rows: classes, bars: sizes, barLabel: classes ? "samples; below: class" : "samples",
    xLabel: "client", yLabel: "class", place: (client) => client, columnNames: client_names,
    share: (client, label) => (counts[client][label] ? 0.1 + 0.9 * Math.sqrt(counts[client][label] / most) : 0),
    text: (client, label) =>
      classes && label >= 0
        ? `${client_(client)}, class ${className(label)}: ${counts[client][label]} of ${sizes[client]} samples`
        : `${client_(client)}: ${sizes[client]} samples`,
    rowName: className,
    words: `Samples of ${sizes.length} clients${classes ? ` by ${classes} classes` : ""}`,
  };
}

// As in the labels of methods: the settings of an algorithm go without its table's name.
const short = (key) => (key === "algorithm.name" ? "algorithm" : key.replace(/^algorithm\./, ""));

function differencesSection() {
  const keys = Object.keys(app.data.differences).sort((one, other) => (other === "algorithm.name") - (one === "algorithm.name"));
  if (app.data.runs.length < 2) return null;
  if (!keys.length) {
    const text = app.data.groups.length > 1 ? "All runs have the same settings." : "The runs differ only in their seed.";
    return { id: "settings", title: "Settings that differ", node: [make("p", {}, text)], update: () => {} };
  }
  const table = sortableTable("Settings that differ", [{ text: "method" }, ...keys.map((key) => ({ text: short(key) }))]);
  const update = () =>
    table.update(
      app.data.groups.map((group, index) => [
        { text: group.label, value: group.label, sample: index },
        ...keys.map((key) => app.data.differences[key][index] ?? "–"),
      ]),
    );
  return { id: "settings", title: "Settings that differ", node: [table.node], update };
}

const named = (key) => readable(key.replace(/^packages\./, ""));

function environmentSection() {
  const { runs } = app.data;
  const keys = [...new Set(runs.flatMap((run) => Object.keys(run.environment)))];
  if (!keys.length) return null;
  const same = keys.filter((key) => runs.every((run) => run.environment[key] === runs[0].environment[key]));
  const other = keys.filter((key) => !same.includes(key));
  const node = [];
  const tables = [];
  if (same.length) {
    const table = sortableTable("Environment of all runs", [{ text: "of all runs" }, { text: "value", long: true }]);
    tables.push(() => table.update(same.map((key) => [named(key), runs[0].environment[key]])));
    node.push(table.node);
  }
  if (other.length) {
    const headings = other.map((key) => ({ text: named(key), long: key === "command" }));
    const table = sortableTable("Environment by run", [{ text: "run" }, ...headings]);
    tables.push(() => table.update(app.data.runs.map((run) => [run.name, ...other.map((key) => run.environment[key] ?? "–")])));
    node.push(make("details", { open: !same.length }, make("summary", {}, "What differs between runs"), table.node));
  }
  return { id: "environment", title: "Environment", node, update: () => tables.forEach((update) => update()) };
}

function reproduceSection() {
  const { runs } = app.data;
  if (!runs.length) return null;
  const text = "A run's experiment.toml is complete: this command reproduces the run, bit for bit on the same machine with the same versions.";
  const commands = make("pre", { tabindex: 0 }, runs.map((run) => run.command).join("\n"));
  const files = runs.map((run) =>
    make("details", {}, make("summary", {}, `${run.name}: experiment.toml`), make("pre", { tabindex: 0 }, run.toml)),
  );
  const listed = files.length > 3 ? [make("details", {}, make("summary", {}, "The experiment files"), files)] : files;
  return { id: "reproduce", title: "Reproduce", node: [make("p", {}, text), commands, ...listed], update: () => {} };
}

function headlineSection() {
  if (!app.data.headline.length) return null;
  const node = make("div", { class: "headline" });
  const update = () => node.replaceChildren(...app.data.headline.map((sentence) => make("p", {}, sentence)));
  return { id: "headline", title: app.data.live && !app.data.done ? "So far" : "In words", node: [node], update };
}

function figuresSection() {
  const { figures } = app.data;
  if (!figures.length) return null;
  const pictures = figures.map(({ name, image }) =>
    make("figure", {}, make("img", { src: image, alt: readable(name) }), make("figcaption", {}, readable(name))),
  );
  return { id: "figures", title: "Figures of analyses", node: [make("div", { class: "figures" }, pictures)], update: () => {} };
}

const BUILDERS = [
  headlineSection, summarySection, curvesSection, classesSection, clientsSection, analysesSection, figuresSection,
  partitionSection, differencesSection,
  environmentSection, reproduceSection,
];
let sections = [];
let built = null;

// What decides which controls there are; while it stays, new data only redraws.
function structure(data) {
  const names = ({ series, spreads, heat }) => [series, spreads, heat].map(Object.keys);
  const keys = (run) => [names(run.metrics), run.clients.map(wayOf), Object.entries(run.analyses).map(([name, columns]) => [name, names(columns)])];
  return JSON.stringify([data.groups, data.runs.map(keys), data.partitions.length, data.differences, data.figures.length, data.headline.length]);
}

function showData(data) {
  app.data = data;
  const { runs } = data;
  const names = [...new Set(runs.map((run) => run.dataset))].sort();
  document.getElementById("about").textContent = runs.length
    ? `${plural(runs.length, "run")}, ${plural(data.groups.length, "method")}, ${names.join(", ")}`
    : "The run has started: this page updates itself after the first round.";
  if (structure(data) !== built) {
    built = structure(data);
    app.listeners.clear();
    sections = BUILDERS.map((build) => build()).filter((section) => section);
    document.getElementById("main").replaceChildren(
      ...sections.map(({ id, title, node }) =>
        make("section", { id, "aria-labelledby": `${id}-title` }, make("h2", { id: `${id}-title` }, title), node),
      ),
    );
    document.getElementById("nav").replaceChildren(...sections.map(({ id, title }) => make("a", { href: `#${id}` }, title)));
  }
  for (const section of sections) section.update();
}

// The server answers when there is something newer than what the page has.
async function follow(data) {
  const state = document.getElementById("state");
  const say = (text) => {
    state.hidden = false;
    state.textContent = text;
  };
  const rounds = () => {
    const { runs } = app.data;
    if (!runs.length) return "waiting";
    const total = `${sum(runs.map(roundsOf))} of ${sum(runs.map((run) => run.planned ?? roundsOf(run)))} rounds`;
    return runs.length > 1 ? `${plural(runs.length, "run")}, ${total}` : total;
  };
  say(`live: ${rounds()}`);
  let version = data.version;
  while (!app.data.done) {
    try {
      const answer = await fetch(`data.json?after=${version}`);
      if (!answer.ok) throw new Error(answer.statusText);
      const newer = await answer.json();
      version = newer.version;
      showData(newer);
      say(`live: ${rounds()}`);
    } catch {
      say(`connection lost after ${rounds()}`);
      return;
    }
  }
  say(`ended after ${rounds()}`);
}

chooseTheme();
const first = JSON.parse(document.getElementById("data").textContent);
showData(first);
if (first.live) follow(first);
