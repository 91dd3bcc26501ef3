// From the columns of runs to the series of a chart: smoothing, and one curve per method over its seeds.

const columnsOf = (run, source) => (source === "metrics" ? run.metrics : run.analyses[source]);

// Keys that some run measured, in the order of their first appearance; counts that are zero all the time say nothing.
function keysOf(source) {
  const keys = new Set();
  for (const run of app.data.runs) {
    const { series = {}, spreads = {} } = columnsOf(run, source) ?? {};
    for (const [key, values] of Object.entries(series)) if (isShare(key) || values.some((value) => value !== 0)) keys.add(key);
    for (const key of Object.keys(spreads)) keys.add(key);
  }
  // What is of the whole model stands before what is of one layer, and counts last.
  const rank = (key) => (key === "steps" ? 2 : key.includes(".") ? 1 : 0);
  return [...keys].sort((one, other) => rank(one) - rank(other));
}

function measured(run, source, key) {
  const columns = columnsOf(run, source);
  if (columns?.series[key]) return { x: columns.x, y: columns.series[key] };
  const spreads = columns?.spreads[key];
  if (!spreads) return null;
  const part = (number) => spreads.map((cell) => (cell ? cell[number] : null));
  return { x: columns.x, y: part(1), low: part(0), high: part(2) };
}

// Mean of the last `count` measurements, at every measurement.
function smooth(values, count) {
  const last = [];
  return values.map((value) => {
    if (!known(value)) return null;
    last.push(value);
    if (last.length > count) last.shift();
    return mean(last);
  });
}

// What was spent up to each round: the other choices for the horizontal axis.
const AXES = {
  round: { label: "round", whole: true, format: plain },
  bytes: { label: "sent and received", whole: false, format: bytes, keys: ["bytes_up", "bytes_down"] },
  seconds: { label: "time", whole: false, format: duration, keys: ["seconds"] },
};

function spent(run, axis) {
  const { x, series } = run.metrics;
  const totals = new Map();
  let total = 0;
  x.forEach((round, number) => {
    for (const key of AXES[axis].keys) total += series[key]?.[number] ?? 0;
    totals.set(round, total);
  });
  return totals;
}

function methodSeries(source, key, { axis = "round", smoothing = 1, bands = "deviation" } = {}) {
  const found = [];
  app.data.groups.forEach((group, index) => {
    if (app.hidden.has(group.label)) return;
    const runs = group.runs.map((number) => app.data.runs[number]);
    const curves = runs.map((run) => ({ run, curve: measured(run, source, key) })).filter(({ curve }) => curve);
    if (!curves.some(({ curve }) => curve.y.some(known))) return;
    found.push(oneMethod(curves, index, group.label, key, axis, smoothing, bands));
  });
  return found;
}

function oneMethod(curves, index, label, key, axis, smoothing, bands) {
  const seeds = curves.map(({ run, curve }) => ({
    ...curve,
    smoothed: smooth(curve.y, smoothing),
    spent: axis === "round" ? null : spent(run, axis),
  }));
  const rounds = [...new Set(seeds.flatMap((seed) => seed.x))].sort((one, other) => one - other);
  const places = seeds.map((seed) => new Map(seed.x.map((round, number) => [round, number])));
  const gather = (pick) =>
    rounds.map((round) =>
      seeds.map((seed, at) => (places[at].has(round) ? pick(seed, places[at].get(round), round) : null)).filter(known),
    );
  const values = gather((seed, number) => seed.smoothed[number]);
  const y = values.map(mean);
  const x = axis === "round" ? rounds : gather((seed, number, round) => seed.spent.get(round) ?? null).map(mean);
  const series = { index, label, x, y, thin: [] };
  const isSpread = seeds.some((seed) => seed.low);
  if (isSpread) {
    series.low = gather((seed, number) => seed.low?.[number]).map((found) => (found.length ? lowest(found) : null));
    series.high = gather((seed, number) => seed.high?.[number]).map((found) => (found.length ? highest(found) : null));
    series.text = (at) => `${shown(key, y[at])} (${shown(key, series.low[at])} to ${shown(key, series.high[at])})`;
  } else if (seeds.length > 1) {
    const std = values.map((found) => (found.length ? deviation(found) : null));
    const several = (at) => (values[at].length > 1 ? ` ± ${shown(key, std[at])}` : "");
    series.text = (at) => `${shown(key, y[at])}${several(at)}`;
    if (bands === "deviation") {
      series.low = y.map((value, at) => (known(value) ? value - std[at] : null));
      series.high = y.map((value, at) => (known(value) ? value + std[at] : null));
    } else if (bands === "seeds") {
      const where = (seed) => (axis === "round" ? seed.x : seed.x.map((round) => seed.spent.get(round) ?? null));
      series.thin = seeds.map((seed) => ({ x: where(seed), y: seed.smoothed, kind: "single" }));
    }
  } else {
    series.text = (at) => shown(key, y[at]);
    if (smoothing > 1) series.thin = [{ x, y: gather((seed, number) => seed.y[number]).map(mean), kind: "raw" }];
  }
  return series;
}
