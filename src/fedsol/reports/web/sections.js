// The sections of the page. Each is {id, title, node, update()}, or null where the runs have nothing for it.

const view = { target: null, axis: "round", smoothing: 1, bands: "deviation", key: {}, run: [0, null], partition: 0 };

// On the global test set; where no run has one, on what clients held out; where they did not, on the validation set.
const primary = () => app.data.primary;
const kinds = () => [["test", ""], ["held_out", "held-out "], ["validation", "validation "]]
  .map(([set, word]) => ({ key: `${set}_${primary().key}`, name: word + primary().title }));
const kindShown = () => kinds().find(({ key }) => app.data.runs.some((run) => run.metrics.series[key])) ?? kinds()[0];
const results = (run) => run.metrics.series[kindShown().key] ?? [];
const heldOut = (run) => run.metrics.series[kinds()[1].key] ?? [];
const showsHeldOut = () => kindShown().key === kinds()[0].key && app.data.runs.some((run) => heldOut(run).some(known));
const asText = (value) => (primary().share ? percent(value) : plain(value));
const better = (one, other) => (primary().higher ? one > other : one < other);
const bestOf = (values) => values.reduce((best, value) => (best === null || better(value, best) ? value : best), null);
const roundsOf = (run) => run.metrics.x.length;
const total = (run, key) => sum((run.metrics.series[key] ?? []).filter(known));
const isUnfinished = (run) => known(run.planned) && roundsOf(run) < run.planned && !run.stopped;
const last = (values) => values.findLast(known) ?? null;
const isChosen = (run) => known(run.best);
// Of the round that validation chose; without validation, the best of any round.
function best(run) {
  const values = results(run);
  if (isChosen(run)) return values[run.metrics.x.indexOf(run.best)] ?? null;
  return bestOf(values.filter(known));
}

// What it took a run until its result first reached the target; null if it never did.
function until(run, target) {
  const at = results(run).findIndex((value) => known(value) && (Math.abs(value - target) < 1e-12 || better(value, target)));
  if (at < 0) return null;
  const { series, x } = run.metrics;
  const upTo = (key) => sum((series[key] ?? []).slice(0, at + 1).filter(known));
  return { round: x[at], bytes: upTo("bytes_up") + upTo("bytes_down") };
}

function defaultTarget() {
  const values = app.data.groups
    .map((group) => mean(group.runs.map((number) => best(app.data.runs[number])).filter(known)))
    .filter(known)
    .sort((one, other) => one - other);
  const middle = values[Math.floor(values.length / 2)] ?? 0.5;
  if (!primary().share) return Number(middle.toPrecision(2));
  return Math.max(5, Math.floor(middle * 20 + 1e-9) * 5);
}

function summarySection() {
  const { share, title } = primary();
  const field = make("input", { type: "number", step: "any", id: "target", ...(share ? { min: 0, max: 100 } : {}) });
  let touched = view.target !== null;
  field.addEventListener("input", () => {
    touched = true;
    view.target = field.value;
    update();
  });
  const target = () => (share ? Math.min(100, Math.max(0, Number(view.target) || 0)) : Number(view.target) || 0);
  const goal = () => target() / (share ? 100 : 1);
  const unit = share ? " %" : "";
  const number = (text, more = {}) => ({ text, number: true, ...more });
  const low = { lowFirst: true };
  const kind = kindShown().name;
  const direction = primary().higher ? {} : low;
  const alsoHeldOut = showsHeldOut() ? [number(kinds()[1].name, direction)] : [];
  const table = sortableTable("Summary of methods", [
    { text: "method" }, number("runs"), number("rounds"), number(`final ${kind}`, direction), number(`best ${kind}`, direction), ...alsoHeldOut,
    number(() => `rounds to ${target()}${unit}`, low), number(() => `traffic to ${target()}${unit}`, low),
    number("traffic", low), number("time", low),
  ]);
  const single = sortableTable("Every run", [
    { text: "run" }, { text: "method" }, number("seed", low), number("rounds"), number(`final ${kind}`, direction),
    number(`best ${kind}`, direction), ...alsoHeldOut, number(() => `rounds to ${target()}${unit}`, low), number("rejected updates", low), number("time", low),
  ]);

  function update() {
    if (!touched) {
      view.target = defaultTarget();
      field.value = view.target;
    }
    const rows = app.data.groups.map((group, index) => methodRow(group, index, goal()));
    for (const column of alsoHeldOut.length ? [3, 4, 5] : [3, 4]) {
      markBest(rows.map((row) => row[column]));
    }
    note.textContent = summaryNote();
    table.update(rows);
    single.update(app.data.runs.map((run, at) => runRow(run, at, goal())));
  }

  field.value = view.target ?? "";
  const label = make("label", { for: "target" }, `target ${title}${share ? " in %" : ""}`);
  const note = make("p", { class: "note" });
  return {
    id: "summary",
    title: "Summary",
    node: [
      make("div", { class: "controls" }, label, field), table.node, note,
      make("details", {}, make("summary", {}, "Every run"), single.node),
    ],
    update,
  };
}

// The best of several, only where it differs from the next by more than the seeds of either differ.
function markBest(cells) {
  const order = cells.filter(({ value }) => known(value)).sort((one, other) => (better(one.value, other.value) ? -1 : 1));
  if (order.length < 2) return;
  const [first, second] = order;
  const spread = Math.max(first.spread ?? Infinity, second.spread ?? Infinity);
  first.best = Math.abs(first.value - second.value) > spread;
}

function summaryNote() {
  const { runs } = app.data;
  const chosen = runs.filter(isChosen).length;
  const others = "the best of any round, which is a little too good: the same set chose it.";
  const best = chosen ? `that of the round which the validation set chose${chosen < runs.length ? "; of runs without one, " : "."}` : "";
  return "Mean ± sample standard deviation over runs that differ only in their seed. Traffic is what the server "
    + "and its clients send to each other; time is the sum over all rounds. Click a heading to sort. "
    + "The best is bold where it differs from the next by more than the standard deviation of either. "
    + `The best ${primary().title} is ${best}${chosen < runs.length ? others : ""}`
    + (runs.some((run) => run.stopped) ? " Where some runs have stopped, curves are means over the others." : "")
    + privacyNote(runs);
}

function privacyNote(runs) {
  const texts = [...new Set(runs.map((run) => run.privacy).filter(known))];
  return texts.length ? ` Differential privacy: ${texts.join(" | ")}.` : "";
}

function methodRow(group, index, target) {
  const runs = group.runs.map((number) => app.data.runs[number]);
  const values = (pick) => runs.map(pick).filter(known);
  const share = (found) => ({
    text: primary().share ? spread(found, (value) => (100 * value).toFixed(2), " %") : spread(found, plain),
    value: mean(found),
    spread: found.length > 1 ? deviation(found) : null,
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
    { text: roundsText(runs), value: mean(runs.map(roundsOf)), note: roundsNote(runs, unfinished) },
    share(values((run) => last(results(run)))),
    share(values(best)),
    ...(showsHeldOut() ? [share(values((run) => last(heldOut(run))))] : []),
    { text: reached.length ? spread(reached.map((found) => found.round), whole) : "never", note: some,
      value: mean(reached.map((found) => found.round)) },
    { text: bytes(mean(reached.map((found) => found.bytes))), value: mean(reached.map((found) => found.bytes)) },
    { text: bytes(mean(traffic)), value: mean(traffic) },
    { text: duration(mean(times)), value: mean(times) },
  ];
}

function roundsNote(runs, unfinished) {
  const stopped = runs.filter((run) => run.stopped).length;
  return unfinished ? "unfinished" : stopped ? `${stopped === runs.length ? "" : `${stopped} `}stopped` : null;
}

function roundsText(runs) {
  const counts = [...new Set(runs.map(roundsOf))].sort((one, other) => one - other);
  const planned = runs.some(isUnfinished) ? ` of ${runs[0].planned}` : "";
  return (counts.length > 1 ? `${counts[0]} to ${counts.at(-1)}` : String(counts[0])) + planned;
}

function runRow(run, at, target) {
  const label = app.data.groups.find((group) => group.runs.includes(at)).label;
  const found = until(run, target);
  const values = results(run);
  return [
    run.name, label, { text: run.seed, value: run.seed },
    { text: roundsText([run]), value: roundsOf(run), note: [run.stopped, run.privacy].filter(Boolean).join("; ") || null },
    { text: asText(last(values)), value: last(values) }, { text: asText(best(run)), value: best(run) },
    ...(showsHeldOut() ? [{ text: asText(last(heldOut(run))), value: last(heldOut(run)) }] : []),
    { text: found ? found.round : "never", value: found ? found.round : null },
    { text: total(run, "rejected"), value: total(run, "rejected") },
    { text: duration(total(run, "seconds")), value: total(run, "seconds") },
  ];
}


// A chart with its controls; `source` is the metrics or one analysis.
function chartOf(source, withAxes) {
  const keys = keysOf(source);
  const first = [...kinds().map(({ key }) => key), "test_loss", "train_loss"];
  const rank = (key) => (first.includes(key) ? first.indexOf(key) : first.length + (isShare(key) ? 0 : 1));
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

// A run of another method with the same seed, or else of another method, to stand beside the first; -1 without any.
function counterpart(runs, first) {
  const own = app.data.groups.find((group) => group.runs.includes(first));
  const others = runs.filter(({ number }) => !own.runs.includes(number));
  return (others.find(({ run }) => run.seed === app.data.runs[first].seed) ?? others[0])?.number ?? -1;
}

const heatKey = (run) => Object.keys(run.metrics.heat)[0];

function classesSection() {
  const runs = app.data.runs.map((run, number) => ({ run, number })).filter(({ run }) => heatKey(run));
  if (!runs.length) return null;
  const options = runs.map(({ run, number }) => [String(number), nameOf(run, number)]);
  if (!runs.some(({ number }) => number === view.run[0])) view.run[0] = runs[0].number;
  if (view.run[1] === null || view.run[1] >= app.data.runs.length) view.run[1] = counterpart(runs, view.run[0]);
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
    controls.append(choice("beside it", others, String(view.run[1]), set(1), true));
  }
  const note = "Test accuracy of each class by round: dark is accurate, and a stripe that turns pale is a class that is being forgotten.";
  const scale = scaleBar("0 %", "100 %");
  const node = [controls, make("div", { class: "pair" }, maps.map((map) => map.node)), scale, make("p", { class: "note" }, note)];
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
    rowName: (row) => run.class_names?.[row] ?? String(row),
    text: (column, row) => `round ${round(column)}, class ${run.class_names?.[row] ?? row}: ${percent(at(column, row) < 0 ? null : at(column, row) / 1000, 1)}`,
    words: `Heat map of the test accuracy of ${width} classes over ${places.length} rounds of ${nameOf(run, number)}`,
  };
}
