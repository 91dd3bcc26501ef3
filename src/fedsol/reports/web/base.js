// Small tools that everything else uses. Text from runs only ever becomes text nodes, never markup.

const app = {
  data: null,
  hidden: new Set(), // labels of methods that the reader switched off
  listeners: new Set(),
};

const COLORS = 10;
const DASHES = ["", "7 4", "9 3 2 3", "2 3", "9 2 2 2 2 2", "5 2", "1 2"];

function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

function choice(label, options, value, onchange, wide = false) {
  const select = make("select", { onchange: () => onchange(select.value) });
  for (const [key, text] of options) select.append(make("option", { value: key, selected: key === value }, text));
  return make("label", { class: wide ? "wide" : null }, label, select);
}

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
const sum = (values) => values.reduce((total, value) => total + value, 0);
const mean = (values) => (values.length ? sum(values) / values.length : null);

function deviation(values) {
  if (values.length < 2) return 0;
  const middle = mean(values);
  return Math.sqrt(sum(values.map((value) => (value - middle) ** 2)) / (values.length - 1));
}

function lowest(values) {
  return values.reduce((best, value) => (value < best ? value : best), Infinity);
}

function highest(values) {
  return values.reduce((best, value) => (value > best ? value : best), -Infinity);
}

// Measurements whose names in files are short.
const NAMES = {
  to_global: "distance global–local, by client", between: "distance local–local, by client",
  cosine: "cos(g_u, g_p), mean over local steps", proximal_loss: "proximal loss at the last step",
  before: "accuracy of the global model, before local training",
  after: "accuracy of local models, after local training",
  held_before: "accuracy before, classes the client holds", held_after: "accuracy after, classes the client holds",
  absent_before: "accuracy before, classes it does not hold", absent_after: "accuracy after, classes it does not hold",
  held_out_accuracy: "held-out accuracy", held_out_std: "deviation of held-out accuracy over clients",
  held_out_worst: "lowest held-out accuracy of a client", held_out_clients: "clients that held data out",
};
const BY_LAYER = [
  [/^layers_to_global\.(.+)$/, "distance global–local"], [/^layers_between\.(.+)$/, "distance local–local"],
  [/^layers\.(.+)\.mean$/, "mean Lambda"], [/^layers\.(.+)\.evenness$/, "mean Lambda × √size"],
  [/^layers\.(.+)\.movement$/, "movement ‖w − a‖ / ‖a‖"],
];

function readable(key) {
  for (const [form, name] of BY_LAYER) if (form.test(key)) return `${name}: ${form.exec(key)[1]}`;
  return Object.hasOwn(NAMES, key) ? NAMES[key] : key.replaceAll("_", " ");
}

const isShare = (key) => /accuracy/.test(readable(key))
  || app.data.shares.some((name) => key === `test_${name}` || key === `held_out_${name}` || key === `validation_${name}`);
const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

function percent(value, digits = 2) {
  return known(value) ? `${(100 * value).toFixed(digits)} %` : "–";
}

function plain(value) {
  if (!known(value)) return "–";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return String(value);
  return size >= 1e6 || (size > 0 && size < 1e-3) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

const shown = (key, value) => (isShare(key) ? percent(value) : plain(value));

function bytes(value) {
  if (!known(value)) return "–";
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  for (; value >= 999.5 && unit < units.length - 1; unit += 1) value /= 1000;
  return `${unit ? value.toPrecision(3) : value} ${units[unit]}`;
}

function duration(seconds) {
  if (!known(seconds)) return "–";
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

function spread(values, format, unit = "") {
  if (!values.length) return "–";
  const text = format(mean(values));
  return (values.length > 1 ? `${text} ± ${format(deviation(values))}` : text) + unit;
}

// A line as it looks in charts and legends.
function sample(index) {
  const line = draw("line", { x1: 1, y1: 5, x2: 25, y2: 5, class: `series s${index % COLORS}` });
  line.setAttribute("stroke-dasharray", DASHES[index % DASHES.length]);
  return draw("svg", { width: 26, height: 10, "aria-hidden": "true" }, line);
}

// Method switches, shared by all charts.
function legend() {
  const list = make("ul", { class: "legend", "aria-label": "Methods: press to show or hide" });
  const set = (labels, hide) => {
    for (const label of labels) app.hidden[hide ? "add" : "delete"](label);
    for (const listener of app.listeners) listener();
  };
  const buttons = app.data.groups.map(({ label }, index) => {
    const press = () => set([label], !app.hidden.has(label));
    return make("button", { type: "button", onclick: press, "data-method": label }, sample(index), label);
  });
  for (const button of buttons) list.append(make("li", {}, button));
  if (buttons.length > 2) {
    const labels = app.data.groups.map((group) => group.label);
    for (const [text, hide] of [["all", false], ["none", true]]) {
      list.append(make("li", {}, make("button", { type: "button", onclick: () => set(labels, hide) }, text)));
    }
  }
  const show = () => {
    for (const button of buttons) button.setAttribute("aria-pressed", !app.hidden.has(button.dataset.method));
  };
  app.listeners.add(show);
  show();
  return list;
}
