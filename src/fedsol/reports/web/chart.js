// Line charts in SVG: hover, touch and arrow keys read values off.

const MOST_POINTS = 1500;
const MOST_IN_TIP = 12;

function ticks(low, high, count, whole = false) {
  const span = high - low || 1;
  const rough = span / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const factors = whole ? [1, 2, 5, 10] : [1, 2, 2.5, 5, 10];
  let step = factors.map((factor) => factor * power).find((size) => size >= rough * 0.999);
  if (whole) step = Math.max(1, Math.round(step));
  const found = [];
  for (let number = Math.ceil(low / step - 1e-9); number * step <= high + step * 1e-9; number += 1) {
    found.push(Number((number * step).toPrecision(12)));
  }
  return found;
}

// spec: {series: [{index, label, x, y, low, high, thin: [{x, y, kind}]}], x: {label, format, whole}, y: {label, format, share}}
function lineChart(describe) {
  const box = make("div", { class: "chart" });
  const readout = make("p", { class: "readout", "aria-live": "polite" });
  let spec = null;
  let frame = null;
  let cursor = null;

  function update() {
    spec = describe();
    redraw();
  }

  function redraw() {
    const width = Math.round(box.clientWidth);
    if (!spec || width < 40) return;
    cursor = null;
    const height = Math.round(Math.min(420, Math.max(250, width * 0.48)));
    const root = draw("svg", {
      viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: 0, "aria-label": describeInWords(spec),
      onpointermove: point, onpointerdown: point, onpointerleave: leave, onkeydown: key, onblur: leave,
    });
    frame = layOut(spec, width, height);
    drawAxes(root, frame, spec);
    for (const series of spec.series) drawBand(root, frame, series);
    for (const series of spec.series) drawSeries(root, frame, series);
    frame.cursor = draw("line", { class: "cursor", y1: frame.top, y2: frame.bottom, visibility: "hidden" });
    frame.dots = draw("g");
    root.append(frame.cursor, frame.dots);
    frame.tip = make("div", { class: "tip", hidden: true });
    box.replaceChildren(root, frame.tip);
  }

  function point(event) {
    const where = event.clientX - box.getBoundingClientRect().left;
    const value = frame.low + ((where - frame.left) / (frame.right - frame.left)) * (frame.high - frame.low);
    show(nearest(frame.places, value));
  }

  function key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e9, End: 1e9 }[event.key];
    if (!step) return;
    event.preventDefault();
    const last = frame.places.length - 1;
    show(cursor === null ? (step > 0 ? 0 : last) : Math.min(last, Math.max(0, cursor + step)));
    readout.textContent = frame.tip.innerText.replaceAll("\n", "  ");
  }

  function leave() {
    cursor = null;
    if (!frame) return;
    frame.tip.hidden = true;
    frame.dots.replaceChildren();
    frame.cursor.setAttribute("visibility", "hidden");
    readout.textContent = "";
  }

  function show(index) {
    if (index === null || index < 0) return;
    cursor = index;
    const x = frame.places[index];
    const found = spec.series
      .map((series) => ({ series, at: nearest(series.x, x) }))
      .filter(({ series, at }) => at !== null && known(series.y[at]) && Math.abs(series.x[at] - x) <= frame.near)
      .map(({ series, at }) => ({ series, at, value: series.y[at] }))
      .sort((one, other) => other.value - one.value);
    const place = frame.toX(x);
    frame.cursor.setAttribute("x1", place);
    frame.cursor.setAttribute("x2", place);
    frame.cursor.setAttribute("visibility", "visible");
    frame.dots.replaceChildren(
      ...found.map(({ series, value }) =>
        draw("circle", { cx: place, cy: frame.toY(value), r: 3.5, class: `f${series.index % COLORS}` }),
      ),
    );
    const lines = found.slice(0, MOST_IN_TIP).map(({ series, at, value }) => {
      const range = series.text ? series.text(at) : spec.y.format(value);
      return make("div", {}, sample(series.index), make("span", {}, series.label), make("b", {}, range));
    });
    if (found.length > MOST_IN_TIP) lines.push(make("div", {}, `and ${found.length - MOST_IN_TIP} more`));
    frame.tip.replaceChildren(make("b", {}, `${spec.x.label} ${spec.x.format(x)}`), ...lines);
    frame.tip.hidden = false;
    const wide = frame.tip.offsetWidth;
    const left = place + 14 + wide > frame.width ? place - 14 - wide : place + 14;
    frame.tip.style.left = `${Math.max(0, Math.min(left, frame.width - wide))}px`;
    frame.tip.style.top = `${frame.top}px`;
  }

  new ResizeObserver(() => box.clientWidth !== frame?.width && redraw()).observe(box);
  return { node: make("div", {}, box, readout), update };
}

function describeInWords(spec) {
  const ends = spec.series.map((series) => {
    const last = series.y.findLast(known);
    return `${series.label}: ${spec.y.format(last)}`;
  });
  return `Line chart of ${spec.y.label} by ${spec.x.label}. At the end: ${ends.join("; ") || "nothing to show"}`;
}

function layOut(spec, width, height) {
  const all = (pick) => spec.series.flatMap((series) => pick(series).filter(known));
  const xs = all((series) => series.x);
  const ys = all((series) => [...series.y, ...(series.low ?? []), ...(series.high ?? [])]);
  for (const series of spec.series) for (const thin of series.thin ?? []) ys.push(...thin.y.filter(known));
  let [low, high] = xs.length ? [lowest(xs), highest(xs)] : [0, 1];
  if (low === high) [low, high] = [low - 0.5, high + 0.5];
  let [bottomValue, topValue] = ys.length ? [lowest(ys), highest(ys)] : [0, 1];
  const room = (topValue - bottomValue) * 0.05 || Math.abs(topValue) * 0.1 || 0.5;
  [bottomValue, topValue] = [bottomValue - room, topValue + room];
  if (spec.y.share) [bottomValue, topValue] = [Math.max(0, bottomValue), Math.min(1, topValue)];
  const yTicks = ticks(bottomValue, topValue, height / 55);
  const labels = yTicks.map(spec.y.tick);
  const left = 14 + 7.2 * Math.max(...labels.map((text) => text.length), 2);
  const frame = { width, height, left, right: width - 12, top: 24, bottom: height - 38, low, high, yTicks, labels };
  frame.toX = (value) => frame.left + ((value - low) / (high - low)) * (frame.right - frame.left);
  frame.toY = (value) => frame.bottom - ((value - bottomValue) / (topValue - bottomValue)) * (frame.bottom - frame.top);
  frame.places = [...new Set(xs)].sort((one, other) => one - other);
  frame.near = Math.max(((high - low) / (frame.right - frame.left)) * 12, 1e-12);
  return frame;
}

function drawAxes(root, frame, spec) {
  frame.yTicks.forEach((value, number) => {
    const y = frame.toY(value);
    root.append(
      draw("line", { class: "grid", x1: frame.left, x2: frame.right, y1: y, y2: y }),
      draw("text", { x: frame.left - 6, y: y + 4, "text-anchor": "end" }, frame.labels[number]),
    );
  });
  const places = ticks(frame.low, frame.high, (frame.right - frame.left) / 90, spec.x.whole);
  for (const value of places) {
    const x = frame.toX(value);
    root.append(
      draw("line", { class: "axis", x1: x, x2: x, y1: frame.bottom, y2: frame.bottom + 4 }),
      draw("text", { x, y: frame.bottom + 17, "text-anchor": "middle" }, spec.x.format(value)),
    );
  }
  root.append(
    draw("line", { class: "axis", x1: frame.left, x2: frame.right, y1: frame.bottom, y2: frame.bottom }),
    draw("text", { x: (frame.left + frame.right) / 2, y: frame.height - 4, "text-anchor": "middle" }, spec.x.label),
    draw("text", { x: 2, y: 14 }, spec.y.label),
  );
  if (!spec.series.length) {
    const middle = { x: (frame.left + frame.right) / 2, y: (frame.top + frame.bottom) / 2, "text-anchor": "middle" };
    root.append(draw("text", middle, spec.empty ?? "nothing to show"));
  }
}

function drawBand(root, frame, series) {
  if (!series.low) return;
  root.append(draw("path", { class: `band f${series.index % COLORS}`, d: bandPath(frame, series) }));
}

function drawSeries(root, frame, series) {
  const color = series.index % COLORS;
  for (const thin of series.thin ?? []) {
    root.append(draw("path", { class: `series ${thin.kind} s${color}`, d: linePath(frame, thin.x, thin.y) }));
  }
  const path = { class: `series s${color}`, "stroke-dasharray": DASHES[series.index % DASHES.length] };
  const d = linePath(frame, series.x, series.y);
  root.append(draw("path", { ...path, d, "data-method": series.label }));
  const values = series.y.filter(known);
  if (values.length === 1) {
    const at = series.y.findIndex(known);
    root.append(draw("circle", { cx: frame.toX(series.x[at]), cy: frame.toY(series.y[at]), r: 3, class: `f${color}` }));
  }
}

function thinned(length) {
  const step = Math.max(1, Math.ceil(length / MOST_POINTS));
  const numbers = [];
  for (let number = 0; number < length; number += step) numbers.push(number);
  if (length && numbers.at(-1) !== length - 1) numbers.push(length - 1);
  return numbers;
}

// Rounds that were not evaluated are bridged: only evaluated ones are measurements.
function linePath(frame, x, y) {
  const points = thinned(x.length).filter((number) => known(y[number]) && known(x[number]));
  return points
    .map((number, at) => `${at ? "L" : "M"}${frame.toX(x[number]).toFixed(1)} ${frame.toY(y[number]).toFixed(1)}`)
    .join("");
}

function bandPath(frame, { x, low, high }) {
  const points = thinned(x.length).filter((number) => known(low[number]) && known(high[number]));
  const at = (values) => (number) => `${frame.toX(x[number]).toFixed(1)} ${frame.toY(values[number]).toFixed(1)}`;
  if (points.length < 2) return "";
  return `M${points.map(at(high)).join("L")}L${points.reverse().map(at(low)).join("L")}Z`;
}

// Number of the nearest value in an ascending list.
function nearest(values, wanted) {
  if (!values.length) return null;
  let [from, to] = [0, values.length - 1];
  while (to - from > 1) {
    const middle = (from + to) >> 1;
    if (values[middle] < wanted) from = middle;
    else to = middle;
  }
  return Math.abs(values[from] - wanted) <= Math.abs(values[to] - wanted) ? from : to;
}
