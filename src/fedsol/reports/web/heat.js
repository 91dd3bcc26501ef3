// Heat maps: cells as pixels of a picture inside an SVG, read off by hover, touch and arrow keys.

// From white to dark blue, as in the figures, in light and dark alike: dark is always more.
const SCALE = [[255, 255, 255], [156, 203, 232], [0, 114, 178], [6, 40, 61]];
const LETTER = 6.5; // its width in pixels
const MISSING = [190, 186, 178];

function scaleColor(share) {
  const place = Math.min(1, Math.max(0, share)) * (SCALE.length - 1);
  const from = Math.min(Math.floor(place), SCALE.length - 2);
  return SCALE[from].map((value, channel) => Math.round(value + (place - from) * (SCALE[from + 1][channel] - value)));
}

function picture(columns, rows, colorOf) {
  const canvas = make("canvas", { width: columns, height: rows });
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(columns, rows);
  for (let row = 0; row < rows; row += 1) {
    for (let column = 0; column < columns; column += 1) {
      const color = colorOf(column, row);
      if (color) pixels.data.set([...color, 255], 4 * (row * columns + column));
    }
  }
  context.putImageData(pixels, 0, 0);
  return canvas;
}

function scaleBar(low, high) {
  const bar = picture(100, 1, (column) => scaleColor(column / 99));
  bar.setAttribute("aria-hidden", "true");
  return make("div", { class: "scale" }, low, bar, high);
}

// spec: {columns, rows, share(column, row) -> 0..1 or null, text(column, row), xLabel, yLabel, place(column), words, bars}
function heatMap(describe) {
  const box = make("div", { class: "chart" });
  const readout = make("p", { class: "readout", "aria-live": "polite" });
  let spec = null;
  let frame = null;
  let cell = null;

  function update() {
    spec = describe();
    redraw();
  }

  function redraw() {
    const width = Math.round(box.clientWidth);
    if (!spec || width < 40) return;
    cell = null;
    const { columns, rows } = spec;
    const barRoom = spec.bars ? 64 : 0;
    const rowHeight = Math.max(rows > 40 ? 3 : 8, Math.min(22, Math.floor(300 / Math.max(rows, 1))));
    const longest = highest([0, ...Array.from({ length: rows }, (_, row) => rowName(row).length)]);
    const [left, right, top] = [Math.min(Math.max(46, 16 + LETTER * longest), width / 3), width - 12, 22 + barRoom];
    const bottom = top + rows * rowHeight;
    const height = bottom + (rows || !spec.bars ? 38 : 30);
    const root = draw("svg", {
      viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: 0, "aria-label": spec.words,
      onpointermove: point, onpointerdown: point, onpointerleave: leave, onkeydown: key, onblur: leave,
    });
    frame = { width, left, right, top, bottom, rowHeight, cellWidth: (right - left) / columns };
    if (rows) drawCells(root);
    if (spec.bars) drawBars(root, barRoom - 14);
    drawLabels(root, height);
    frame.mark = draw("rect", { class: "cursor", fill: "none", visibility: "hidden" });
    root.append(frame.mark);
    frame.tip = make("div", { class: "tip", hidden: true });
    box.replaceChildren(root, frame.tip);
  }

  function rowName(row) {
    const name = spec.rowName ? spec.rowName(row) : String(row);
    return name.length > 18 ? `${name.slice(0, 17)}…` : name;
  }

  function drawCells(root) {
    const { columns, rows } = spec;
    const href = picture(columns, rows, (column, row) => {
      const share = spec.share(column, row);
      return share === null ? MISSING : scaleColor(share);
    }).toDataURL();
    root.append(
      draw("image", {
        href, x: frame.left, y: frame.top, width: frame.right - frame.left, height: rows * frame.rowHeight,
        preserveAspectRatio: "none", "image-rendering": "pixelated",
      }),
      draw("rect", {
        x: frame.left, y: frame.top, width: frame.right - frame.left, height: rows * frame.rowHeight,
        class: "axis", fill: "none",
      }),
    );
  }

  function drawBars(root, height) {
    const most = highest(spec.bars) || 1;
    const floor = frame.top - 4;
    spec.bars.forEach((value, column) => {
      const tall = (height * value) / most;
      const place = { x: frame.left + column * frame.cellWidth, width: Math.max(0.5, frame.cellWidth * 0.85) };
      root.append(draw("rect", { ...place, y: floor - tall, height: tall, class: "bar" }));
    });
    root.append(draw("text", { x: frame.left - 6, y: floor - height + 8, "text-anchor": "end" }, plain(most)));
    root.append(draw("text", { x: 2, y: 12 }, spec.barLabel));
  }

  function drawLabels(root, height) {
    const below = (column, text) => {
      const x = frame.left + (column + 0.5) * frame.cellWidth;
      root.append(draw("text", { x, y: frame.bottom + 15, "text-anchor": "middle" }, text));
    };
    const names = spec.columnNames ?? [];
    if (names.length && LETTER * highest(names.map((name) => name.length)) < frame.cellWidth) {
      names.forEach((name, column) => below(column, name));
    } else {
      const places = Array.from({ length: spec.columns }, (_, column) => spec.place(column));
      const count = (frame.right - frame.left) / 80;
      for (const value of ticks(places[0], places.at(-1), count, true)) below(nearest(places, value), String(value));
    }
    const step = Math.max(1, Math.ceil(14 / frame.rowHeight));
    for (let row = 0; row < spec.rows; row += step) {
      const y = frame.top + (row + 0.5) * frame.rowHeight + 4;
      root.append(draw("text", { x: frame.left - 6, y, "text-anchor": "end" }, rowName(row)));
    }
    root.append(
      draw("text", { x: (frame.left + frame.right) / 2, y: height - 4, "text-anchor": "middle" }, spec.xLabel),
    );
    if (spec.rows) root.append(draw("text", { x: 2, y: frame.top - 8 }, spec.bars ? "" : spec.yLabel));
  }

  function point(event) {
    const place = box.getBoundingClientRect();
    const column = Math.floor((event.clientX - place.left - frame.left) / frame.cellWidth);
    const row = Math.floor((event.clientY - place.top - frame.top) / frame.rowHeight);
    show(column, row);
  }

  function key(event) {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const [column, row] = cell ?? [-step[0], -step[1]];
    const within = (value, count) => Math.min(Math.max(count - 1, 0), Math.max(0, value));
    show(within(column + step[0], spec.columns), within(row + step[1], spec.rows));
    readout.textContent = frame.tip.textContent;
  }

  function leave() {
    cell = null;
    if (!frame) return;
    frame.tip.hidden = true;
    frame.mark.setAttribute("visibility", "hidden");
    readout.textContent = "";
  }

  function show(column, row) {
    const inside = column >= 0 && column < spec.columns && row < Math.max(spec.rows, 1);
    if (!inside || (row < 0 && !spec.bars)) return leave();
    cell = [column, Math.max(row, 0)];
    const x = frame.left + column * frame.cellWidth;
    const y = frame.top + Math.max(row, 0) * frame.rowHeight;
    const size = { x, y, width: frame.cellWidth, height: spec.rows ? frame.rowHeight : 0 };
    for (const [name, value] of Object.entries(size)) frame.mark.setAttribute(name, value);
    frame.mark.setAttribute("visibility", "visible");
    frame.tip.textContent = spec.text(column, row);
    frame.tip.hidden = false;
    const wide = frame.tip.offsetWidth;
    const left = x + 16 + wide > frame.width ? x - 12 - wide : x + 16;
    frame.tip.style.left = `${Math.max(0, left)}px`;
    frame.tip.style.top = `${Math.max(0, y - 34)}px`;
  }

  new ResizeObserver(() => box.clientWidth !== frame?.width && redraw()).observe(box);
  return { node: make("div", {}, box, readout), update };
}
