// Accuracies by client: how unequal they are, for every way in which they were measured.

const wayOf = ({ models, tested_on: test }) => `${models} (${test})`;
const TENTH = 0.1;

// The clients of all seeds of a method together.
function accuraciesByWay(group) {
  const ways = new Map();
  for (const number of group.runs) {
    for (const entry of app.data.runs[number].clients) {
      const way = wayOf(entry);
      ways.set(way, [...(ways.get(way) ?? []), ...entry.values.filter(known)]);
    }
  }
  for (const values of ways.values()) values.sort((one, other) => one - other);
  return ways;
}

function clientsSection() {
  const ways = [...new Set(app.data.runs.flatMap((run) => run.clients.map(wayOf)))];
  if (!ways.length) return null;
  if (!ways.includes(view.way)) {
    // The one that most methods have; of several, the last: the most epochs of the last way to personal models.
    const methods = (way) => app.data.groups.filter((group) => accuraciesByWay(group).has(way)).length;
    view.way = ways.findLast((way) => methods(way) === highest(ways.map(methods)));
  }
  const chart = lineChart(() => ({
    series: app.data.groups.flatMap((group, index) => {
      const values = accuraciesByWay(group).get(view.way) ?? [];
      const x = values.map((_, rank) => (100 * (rank + 0.5)) / values.length);
      return values.length && !app.hidden.has(group.label) ? [{ index, label: group.label, x, y: values }] : [];
    }),
    x: { label: "clients from worst to best, in %", format: (value) => plain(Number(value.toFixed(1))) },
    y: {
      label: "accuracy of a client's model", share: true, format: (value) => percent(value),
      tick: (value) => `${Number((100 * value).toPrecision(6))} %`,
    },
    empty: "nothing to show: choose other models above, or methods below",
  }));
  const number = (text) => ({ text, number: true });
  const table = sortableTable("Accuracies over clients", [
    { text: "method" }, { text: "models" }, { text: "tested on" }, number("clients"), number("mean"),
    number("std over clients"), number("worst tenth"), number("best tenth"),
  ]);
  const each = namedClients();
  const update = () => {
    chart.update();
    table.update(app.data.groups.flatMap(clientRows));
    each?.update();
  };
  app.listeners.add(chart.update);
  const pick = (value) => {
    view.way = value;
    chart.update();
    each?.update();
  };
  const options = ways.map((way) => [way, way]);
  const controls = make("div", { class: "controls" }, choice("models", options, view.way, pick, true));
  const note = "Every client has one model and one test; the seeds are pooled. The worst and best tenth are means over a tenth of "
    + "the clients (at least one).";
  const named = each ? [make("details", {}, make("summary", {}, "Client by client"), each.node)] : [];
  const node = [controls, chart.node, legend(), table.node, make("p", { class: "note" }, note), ...named];
  return { id: "clients", title: "Client accuracies", node, update };
}

// Clients that have names, one by one: the mean over seeds of what each method reaches with the models chosen above.
function namedClients() {
  const names = app.data.runs.find((run) => run.client_names.length)?.client_names;
  if (!names) return null;
  const number = (text) => ({ text, number: true });
  const table = sortableTable("Accuracy of every client", [{ text: "client" }, ...app.data.groups.map(({ label }) => number(label))]);
  const found = (group, client) =>
    group.runs
      .filter((at) => app.data.runs[at].client_names[client] === names[client])
      .flatMap((at) => app.data.runs[at].clients.filter((entry) => wayOf(entry) === view.way))
      .map((entry) => entry.values[entry.clients.indexOf(client)])
      .filter(known);
  const cell = (values) => ({ text: percent(mean(values)), value: mean(values) });
  const update = () =>
    table.update(names.map((name, client) => [name, ...app.data.groups.map((group) => cell(found(group, client)))]));
  return { node: table.node, update };
}

function clientRows(group, index) {
  const entries = group.runs.flatMap((at) => app.data.runs[at].clients);
  const byWay = accuraciesByWay(group);
  return [...new Map(entries.map((entry) => [wayOf(entry), entry]))].map(([way, { models, tested_on: test }]) => {
    const values = byWay.get(way);
    const some = Math.ceil(values.length * TENTH);
    const middle = mean(values);
    const std = values.length ? Math.sqrt(mean(values.map((value) => (value - middle) ** 2))) : null;
    const cell = (value) => ({ text: percent(value), value });
    return [
      { text: group.label, value: group.label, sample: index }, models, test, { text: values.length, value: values.length },
      cell(middle), cell(std), cell(mean(values.slice(0, some))), cell(mean(values.slice(values.length - some))),
    ];
  });
}
