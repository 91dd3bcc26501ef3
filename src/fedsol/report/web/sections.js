// The sections of the page. Each is {id, title, node, update()}, or null where the runs have nothing for it.

const view = { target: null, axis: "round", smoothing: 1, bands: "deviation", key: {}, run: [0, -1], partition: 0 };

// On the global test set; where no run has one, on what clients held out.
const accuracyKey = () =>
  ["test_accuracy", "held_out_accuracy"].find((key) => app.data.runs.some((run) => run.metrics.series[key])) ?? "test_accuracy";
const accuracies = (run) => run.metrics.series[accuracyKey()] ?? [];
const heldOut = (run) => run.metrics.series.held_out_accuracy ?? [];
const showsHeldOut = () => accuracyKey() === "test_accuracy" && app.data.runs.some((run) => heldOut(run).some(known));
const roundsOf = (run) => run.metrics.x.length;
const total = (run, key) => sum((run.metrics.series[key] ?? []).filter(known));
const isUnfinished = (run) => known(run.planned) && roundsOf(run) < run.planned;
const last = (values) => values.findLast(known) ?? null;
const best = (values) => (values.some(known) ? highest(values.filter(known)) : null);

// What it took a run until its test accuracy first reached the target; null if it never did.
function until(run, target) {
  const at = accuracies(run).findIndex((value) => known(value) && value >= target - 1e-12);
  if (at < 0) return null;
  const { series, x } = run.metrics;
  const upTo = (key) => sum((series[key] ?? []).slice(0, at + 1).filter(known));
  return { round: x[at], bytes: upTo("bytes_up") + upTo("bytes_down") };
}

function defaultTarget() {
  const values = app.data.groups
    .map((group) => mean(group.runs.map((number) => best(accuracies(app.data.runs[number]))).filter(known)))
    .filter(known)
    .sort((one, other) => one - other);
  const middle = values[Math.floor(values.length / 2)] ?? 0.5;
  return Math.max(5, Math.floor(middle * 20 + 1e-9) * 5);
}

function summarySection() {
  const field = make("input", { type: "number", min: 0, max: 100, step: "any", id: "target" });
  let touched = view.target !== null;
  field.addEventListener("input", () => {
    touched = true;
    view.target = field.value;
    update();
  });
  const target = () => Math.min(100, Math.max(0, Number(view.target) || 0));
  const number = (text, more = {}) => ({ text, number: true, ...more });
  const low = { lowFirst: true };
  const kind = accuracyKey() === "test_accuracy" ? "accuracy" : "held-out accuracy";
  const alsoHeldOut = showsHeldOut() ? [number("held-out accuracy")] : [];
  const table = sortableTable("Summary of methods", [
    { text: "method" }, number("runs"), number("rounds"), number(`final ${kind}`), number(`best ${kind}`), ...alsoHeldOut,
    number(() => `rounds to ${target()} %`, low), number(() => `traffic to ${target()} %`, low),
    number("traffic", low), number("time", low),
  ]);
  const single = sortableTable("Every run", [
    { text: "run" }, { text: "method" }, number("seed", low), number("rounds"), number(`final ${kind}`),
    number(`best ${kind}`), ...alsoHeldOut, number(() => `rounds to ${target()} %`, low), number("rejected updates", low), number("time", low),
  ]);

  function update() {
    if (!touched) {
      view.target = defaultTarget();
      field.value = view.target;
    }
    const rows = app.data.groups.map((group, index) => methodRow(group, index, target() / 100));
    for (const column of alsoHeldOut.length ? [3, 4, 5] : [3, 4]) {
      const most = highest(rows.map((row) => row[column].value ?? -1));
      if (rows.length > 1) for (const row of rows) row[column].best = row[column].value === most;
    }
    table.update(rows);
    single.update(app.data.runs.map((run, at) => runRow(run, at, target() / 100)));
  }

  field.value = view.target ?? "";
  const label = make("label", { for: "target" }, "target accuracy in %");
  const note = "Mean ± sample standard deviation over runs that differ only in their seed. Traffic is what the server "
    + "and its clients send to each other; time is the sum over all rounds. Click a heading to sort.";
  return {
    id: "summary",
    title: "Summary",
    node: [
      make("div", { class: "controls" }, label, field), table.node, make("p", { class: "note" }, note),
      make("details", {}, make("summary", {}, "Every run"), single.node),
    ],
    update,
  };
}

function methodRow(group, index, target) {
  const runs = group.runs.map((number) => app.data.runs[number]);
  const values = (pick) => runs.map(pick).filter(known);
  const share = (found) => ({
    text: spread(found, (value) => (100 * value).toFixed(2), " %"), value: mean(found),
  });
  const reached = runs.map((run) => until(run, target)).filter((found) => found);
  const some = reached.length && reached.length < runs.length ? `in ${reached.length} of ${runs.length}` : null;
  const whole = (value) => String(Math.round(value));
  const unfinished = runs.filter(isUnfinished).length && !app.data.live;
  const traffic = values((run) => total(run, "bytes_up") + total(run, "bytes_down"));
  const times = values((run) => total(run, "seconds"));
  return [
    { text: group.label, value: group.label, sample: index },
    { text: runs.length, value: runs.length },
    { text: roundsText(runs), value: mean(runs.map(roundsOf)), note: unfinished ? "unfinished" : null },
    share(values((run) => last(accuracies(run)))),
    share(values((run) => best(accuracies(run)))),
    ...(showsHeldOut() ? [share(values((run) => last(heldOut(run))))] : []),
    { text: reached.length ? spread(reached.map((found) => found.round), whole) : "never", note: some,
      value: mean(reached.map((found) => found.round)) },
    { text: bytes(mean(reached.map((found) => found.bytes))), value: mean(reached.map((found) => found.bytes)) },
    { text: bytes(mean(traffic)), value: mean(traffic) },
    { text: duration(mean(times)), value: mean(times) },
  ];
}

function roundsText(runs) {
  const counts = [...new Set(runs.map(roundsOf))].sort((one, other) => one - other);
  const planned = runs.some(isUnfinished) ? ` of ${runs[0].planned}` : "";
  return (counts.length > 1 ? `${counts[0]} to ${counts.at(-1)}` : String(counts[0])) + planned;
}

function runRow(run, at, target) {
  const label = app.data.groups.find((group) => group.runs.includes(at)).label;
  const found = until(run, target);
  const values = accuracies(run);
  return [
    run.name, label, { text: run.seed, value: run.seed },
    { text: roundsText([run]), value: roundsOf(run) },
    { text: percent(last(values)), value: last(values) }, { text: percent(best(values)), value: best(values) },
    ...(showsHeldOut() ? [{ text: percent(last(heldOut(run))), value: last(heldOut(run)) }] : []),
    { text: found ? found.round : "never", value: found ? found.round : null },
    { text: total(run, "rejected"), value: total(run, "rejected") },
    { text: duration(total(run, "seconds")), value: total(run, "seconds") },
  ];
}

const FIRST = ["test_accuracy", "held_out_accuracy", "test_loss", "train_loss"];

// A chart with its controls; `source` is the metrics or one analysis.
function chartOf(source, withAxes) {
  const keys = keysOf(source);
  const rank = (key) => (FIRST.includes(key) ? FIRST.indexOf(key) : FIRST.length + (isShare(key) ? 0 : 1));
  if (source === "metrics") keys.sort((one, other) => rank(one) - rank(other));
  if (!keys.length) return null;
  if (!keys.includes(view.key[source])) view.key[source] = keys[0];
  const chart = lineChart(() => {
    const key = view.key[source];
    const share = isShare(key);
    const axis = withAxes ? view.axis : "round";
    return {
      series: methodSeries(source, key, { axis, smoothing: withAxes ? view.smoothing : 1, bands: view.bands }),
      x: AXES[axis],
      y: {
        label: readable(key) + (key === "seconds" ? " per round" : ""), share, format: (value) => shown(key, value),
        tick: (value) => (share ? `${Number((100 * value).toPrecision(6))} %` : plain(value)),
      },
      empty: app.data.runs.length ? "nothing to show: choose methods below" : "no finished round yet",
    };
  });
  const set = (name) => (value) => {
    view[name] = value;
    for (const listener of app.listeners) listener();
  };
  const controls = make("div", { class: "controls" });
  const pick = (value) => {
    view.key[source] = value;
    chart.update();
  };
  if (keys.length > 1) controls.append(choice("show", keys.map((key) => [key, readable(key)]), view.key[source], pick, true));
  if (withAxes) {
    const axes = [["round", "rounds"], ["bytes", "traffic"], ["seconds", "time"]];
    controls.append(choice("by", axes, view.axis, set("axis")), smoothingSlider(set("smoothing")));
    if (app.data.groups.some((group) => group.runs.length > 1)) {
      const kinds = [["deviation", "± standard deviation"], ["seeds", "each seed"], ["none", "mean only"]];
      controls.append(choice("seeds", kinds, view.bands, set("bands")));
    }
  }
  app.listeners.add(chart.update);
  return { controls, chart };
}

function smoothingSlider(set) {
  const text = make("output", {});
  const slider = make("input", { type: "range", min: 1, max: 50, value: view.smoothing, id: "smoothing" });
  const say = () => (text.textContent = slider.value === "1" ? "off" : `${slider.value} rounds`);
  slider.addEventListener("input", () => {
    say();
    set(Number(slider.value));
  });
  say();
  return make("label", { title: "Mean of the last evaluations" }, "smoothing", slider, text);
}

function curvesSection() {
  const parts = chartOf("metrics", true);
  if (!parts) return null;
  const { chart, controls } = parts;
  const node = [controls, chart.node, legend()];
  return { id: "curves", title: "Learning curves", node, update: chart.update };
}

function analysesSection() {
  const names = [...new Set(app.data.runs.flatMap((run) => Object.keys(run.analyses)))].sort();
  const found = names.map((name) => ({ name, parts: chartOf(name, false) })).filter(({ parts }) => parts);
  if (!found.length) return null;
  const note = "Where a round has several values (for example by client), the line is their mean and the band reaches from the "
    + "lowest to the highest; otherwise the band is one standard deviation over seeds.";
  const nodes = found.flatMap(({ name, parts: { controls, chart } }) => [
    make("h3", {}, readable(name)), controls, chart.node,
  ]);
  return {
    id: "analyses", title: "Analyses", node: [...nodes, legend(), make("p", { class: "note" }, note)],
    update: () => found.forEach(({ parts }) => parts.chart.update()),
  };
}

const heatKey = (run) => Object.keys(run.metrics.heat)[0];

function classesSection() {
  const runs = app.data.runs.map((run, number) => ({ run, number })).filter(({ run }) => heatKey(run));
  if (!runs.length) return null;
  const options = runs.map(({ run, number }) => [String(number), nameOf(run, number)]);
  if (!runs.some(({ number }) => number === view.run[0])) view.run[0] = runs[0].number;
  if (view.run[1] >= app.data.runs.length) view.run[1] = -1;
  const maps = [0, 1].map((slot) => heatMap(() => classMap(view.run[slot])));
  const update = () => {
    maps[1].node.hidden = view.run[1] < 0;
    for (const [slot, map] of maps.entries()) if (view.run[slot] >= 0) map.update();
  };
  const set = (slot) => (value) => {
    view.run[slot] = Number(value);
    update();
  };
  const controls = make("div", { class: "controls" }, choice("run", options, String(view.run[0]), set(0), true));
  if (runs.length > 1) {
    const others = [["-1", "nothing"], ...options];
    controls.append(choice("below it", others, String(view.run[1]), set(1), true));
  }
  const note = "Test accuracy of each class by round: a stripe that turns dark is a class that is being forgotten.";
  const scale = scaleBar("0 %", "100 %");
  const node = [controls, maps[0].node, maps[1].node, scale, make("p", { class: "note" }, note)];
  return { id: "classes", title: "Accuracy by class", node, update };
}

function nameOf(run, number) {
  const label = app.data.groups.find((group) => group.runs.includes(number)).label;
  return `${label}, seed ${run.seed}`;
}

function classMap(number) {
  const run = app.data.runs[number];
  const { rows: places, width, values } = run.metrics.heat[heatKey(run)];
  const at = (column, row) => values[column * width + row];
  const round = (column) => run.metrics.x[places[column]];
  return {
    columns: places.length, rows: width, xLabel: "round", yLabel: `class: ${nameOf(run, number)}`,
    share: (column, row) => (at(column, row) < 0 ? null : at(column, row) / 1000),
    place: round,
    text: (column, row) => `round ${round(column)}, class ${row}: ${percent(at(column, row) < 0 ? null : at(column, row) / 1000, 1)}`,
    words: `Heat map of the test accuracy of ${width} classes over ${places.length} rounds of ${nameOf(run, number)}`,
  };
}
