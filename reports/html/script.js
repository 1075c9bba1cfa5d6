// The interactive timeline. The data block has columns of samples, as differences; what each panel shows; and the marks.
// Figures of an interval are those of samples: an interval ends at samples and at marks alone, and "above" keeps the
// largest of samples that were left out, so that what is shown here is what the account has.
"use strict";
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const live = document.getElementById("live");
  if (!live || !data.t.length || typeof uPlot !== "function") return;

  // ---- the columns ----
  function summed(differences) {
    let sum = 0;
    return differences.map((d) => (d === null ? null : (sum += d)));
  }
  const T = summed(data.t);
  const X = T.map((t) => t / 1e9);
  const columns = new Map(data.columns.map((c) => [c.name, Object.assign(c, { values: summed(c.values), above: new Map(c.above || []) })]));
  const rates = new Map(data.rates.map((r) => [r.name, r.values]));
  const drawnOnly = new Set(data.drawn_only);

  // ---- words and numbers, as in the other reports ----
  const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  function significant(v) {
    if (v === 0) return "0";
    if (v < 0.005) return "<0.01";
    if (v < 9.995) return v.toFixed(2);
    if (v < 99.95) return v.toFixed(1);
    return v.toFixed(0);
  }
  function byteUnit(v) {
    let unit = 0;
    while (unit < 5 && v >= Math.pow(1024, unit + 1)) unit++;
    return unit;
  }
  function bytes(v) {
    const unit = byteUnit(v), size = Math.pow(1024, unit);
    return (v % size === 0 ? String(v / size) : significant(v / size)) + " " + BYTES[unit];
  }
  function count(v) {
    if (v < 1e3) return String(v);
    if (v < 999500) return significant(v / 1e3) + "k";
    if (v < 999500000) return significant(v / 1e6) + "M";
    return significant(v / 1e9) + "G";
  }
  function duration(ns) {
    if (ns === 0) return "0 s";
    const units = [[1e3, 1, "ns"], [999500, 1e3, "µs"], [999500000, 1e6, "ms"], [Infinity, 1e9, "s"]];
    const [, size, name] = units.find(([end]) => ns < end);
    return (ns % size === 0 ? String(ns / size) : significant(ns / size)) + " " + name;
  }
  const time = (ns) => (ns < 0 ? "-" : "") + duration(Math.abs(ns));
  const SHOWN = { bytes: bytes, count: count, ns: duration };
  const SHOWN_RATE = { bytes: (v) => bytes(v) + "/s", bytes_per_second: (v) => bytes(v) + "/s", per_second: (v) => count(v) + "/s" };
  function shown(unit, v) {
    return v === null || v === undefined ? "–" : SHOWN[unit](v);
  }
  function change(unit, v) {
    if (v === null) return "–";
    if (v === 0) return "0";
    return (v < 0 ? "−" : "+") + SHOWN[unit](Math.abs(v));
  }

  function make(tag, properties, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties || {})) {
      if (name === "class") element.className = value;
      else if (name.startsWith("aria-") || name === "role" || name.startsWith("data-")) element.setAttribute(name, value);
      else element[name] = value;
    }
    element.append(...children);
    return element;
  }

  // ---- where an interval may end ----
  // A stop has the row whose values are its, and the first row that belongs to an interval that begins there.
  const first = T.findIndex((t) => t >= 0);
  const stops = [{ t: 0, row: null, first: first < 0 ? T.length : first, name: "start", start: true }];
  T.forEach((t, row) => {
    if (t >= 0 && !drawnOnly.has(row)) stops.push({ t: t, row: row, first: row, name: null });
  });
  const markStops = data.marks.map((mark) => {
    const stop = { t: mark.t, row: mark.row, first: mark.first, name: mark.name, mark: mark };
    stops.push(stop);
    return stop;
  });
  // Stable: a mark comes after the sample of its time, and marks keep their order.
  stops.sort((a, b) => a.t - b.t || (a.start ? -1 : b.start ? 1 : 0));
  const lastStop = stops[stops.length - 1];

  function largest(column, from, to) {
    let most = null;
    for (let row = from; row <= to; row++) {
      const value = column.values[row];
      if (value !== null && value !== undefined && (most === null || value > most)) most = value;
      const above = row < to ? column.above.get(row) : undefined;
      if (above !== undefined && (most === null || above > most)) most = above;
    }
    return most;
  }

  // What the account would say of the interval between two stops.
  function figures(begin, end) {
    const rows = [];
    for (const column of columns.values()) {
      const at = (stop) => (stop.row === null || stop.row >= T.length ? null : column.values[stop.row]);
      const before = begin.start ? (column.counter ? 0 : null) : at(begin);
      const after = at(end);
      const difference = before === null || after === null ? null : after - before;
      const until = end.row === null ? -1 : end.row;
      const most = column.counter ? null : largest(column, Math.min(begin.first, until), until);
      rows.push({
        name: column.name, unit: column.unit, counter: column.counter, before: before, after: after,
        change: column.counter && difference < 0 ? null : difference, largest: most,
      });
    }
    return rows;
  }

  // ---- the page ----
  const tools = make("div", { class: "tools" });
  const strip = make("div", { class: "strip" });
  const track = make("div", { class: "track" });
  const rail = make("div", { class: "rail" });
  const chosen = make("div", { class: "chosen" });
  const plots = make("div", { class: "plots" });
  const interval = make("div", { id: "interval" });
  const handle = (name) => make("button", { class: "handle", type: "button", role: "slider", "aria-label": name, id: name === "begin of the interval" ? "begin" : "end" });
  const handles = [handle("begin of the interval"), handle("end of the interval")];
  track.append(rail, chosen, ...handles);
  live.append(tools, strip, track, plots, interval);
  live.hidden = false;
  document.documentElement.classList.add("is-live");

  const initial = data.view.map((t) => t / 1e9);
  const everything = data.all.map((t) => t / 1e9);
  let view = initial.slice();
  let charts = [];
  let shades = [];
  let selected = [stops[0], stops.find((stop) => stop.mark && stop.mark.stopping) || markStops[markStops.length - 1] || lastStop];

  const LEFT = () => (live.clientWidth < 560 ? 62 : 80);
  const RIGHT = 12;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

  // ---- axes ----
  function nice(step) {
    const power = Math.pow(10, Math.floor(Math.log10(step)));
    return [1, 2, 5, 10].find((n) => n * power >= step * 0.999999) * power;
  }
  function splits(u, axis, min, max) {
    const size = u.panel.unit === "per_second" ? 1 : Math.pow(1024, byteUnit(max));
    let room = Math.max(2, Math.floor(u.height / 46));
    let step = Infinity;
    while (step > max * 0.9) step = nice(Math.max(max, 1e-9) / size / room++) * size;
    const found = [];
    for (let v = 0; v <= max * 1.000001; v += step) found.push(v);
    return found;
  }
  function ticks(u, values) {
    if (!values.length) return values;
    const most = values[values.length - 1];
    const second = u.panel.unit === "bytes" ? "" : "/s";
    if (u.panel.unit === "per_second") {
      const [size, name] = most < 1e3 ? [1, ""] : most < 1e6 ? [1e3, "k"] : most < 1e9 ? [1e6, "M"] : [1e9, "G"];
      return values.map((v) => (v === 0 ? "0" : Number((v / size).toPrecision(4)) + name + second));
    }
    const unit = byteUnit(most), size = Math.pow(1024, unit);
    const digits = values.some((v) => Math.abs((v / size) % 1) > 1e-9) ? (values[1] / size < 0.1 ? 2 : 1) : 0;
    return values.map((v) => (v === 0 ? "0" : (v / size).toFixed(digits) + " " + BYTES[unit] + second));
  }
  function seconds(u, values) {
    const span = u.scales.x.max - u.scales.x.min;
    const [size, name] = span < 2e-6 ? [1e-9, "ns"] : span < 2e-3 ? [1e-6, "µs"] : span < 1 ? [1e-3, "ms"] : span < 10800 ? [1, "s"] : [3600, "h"];
    return values.map((v) => Number((v / size).toPrecision(6)) + " " + name);
  }

  // ---- charts ----
  function lines(panel) {
    return panel.series.map((series) => {
      if (series.own) {
        const values = new Array(panel.t.length).fill(null);
        for (const [row, value] of series.own) values[row] = value;
        return values;
      }
      if (series.rate) return rates.get(series.rate);
      const parts = series.sum.map((name) => columns.get(name).values);
      const also = series.less ? columns.get(series.less).values : null;
      return T.map((_, row) => {
        if (also && also[row] === null) return null;
        let sum = 0;
        for (const part of parts) {
          if (part[row] === null) return null;
          sum += part[row];
        }
        return sum;
      });
    });
  }
  function own(panel, series, values, row) {
    if (row === null || row === undefined) return "–";
    let value = values;
    if (series.sum) {
      value = columns.get(series.sum[series.sum.length - 1]).values[row];
      if (series.less && value !== null) value = Math.max(0, value - (columns.get(series.less).values[row] || 0));
    }
    if (value === null || value === undefined) return "–";
    return panel.unit === "bytes" ? bytes(value) : SHOWN_RATE[panel.unit](value);
  }
  const PATHS = {
    straight: uPlot.paths.linear(),
    held: uPlot.paths.stepped({ align: 1 }),
    led: uPlot.paths.stepped({ align: -1 }),
  };
  function seriesOf(panel, series) {
    const main = colour(series.colour === "absent" ? "absent" : series.colour);
    const fill = series.looks === "fill";
    return {
      label: series.label,
      stroke: fill ? (series.colour === "sky" && panel.title === "Payload" ? colour("sky-edge") : main) : main,
      width: fill ? (series.colour === "sky" && panel.title === "Payload" ? 1.2 : 0) : series.looks === "dashes" ? 1.4 : panel.title === "Payload" ? 2.2 : 1.5,
      fill: fill ? main : undefined,
      dash: series.looks === "dashes" ? [6, 4] : undefined,
      paths: PATHS[series.path],
      points: { show: (u, si, from, to) => fill ? false : to - from < 2 },
      spanGaps: series.now_and_then,
      value: (u, v, si, row) => own(panel, series, v, row),
    };
  }
  function background(u) {
    const context = u.ctx, { left, top, width, height } = u.bbox;
    context.save();
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
    const x = (t) => u.valToPos(t / 1e9, "x", true);
    context.fillStyle = colour("gap");
    for (const [from, to] of u.panel.gaps) hatch(context, x(from), Math.max(x(to), x(from) + 2), top, top + height);
    context.fillStyle = colour("mark");
    for (const mark of data.marks) {
      const at = x(mark.t);
      if (mark.uncertainty) {
        context.globalAlpha = 0.1;
        context.fillRect(x(mark.t - mark.uncertainty), top, at - x(mark.t - mark.uncertainty), height);
      }
    }
    context.restore();
  }
  function hatch(context, left, right, top, bottom) {
    const step = 8 * devicePixelRatio;
    context.save();
    context.beginPath();
    context.rect(left, top, right - left, bottom - top);
    context.clip();
    context.strokeStyle = colour("gap");
    context.lineWidth = 2 * devicePixelRatio;
    context.beginPath();
    // The clip may be far outside of what is seen.
    const from = Math.max(left, -step), to = Math.min(right, context.canvas.width + step);
    for (let at = from - (bottom - top); at < to; at += step) {
      context.moveTo(at, bottom);
      context.lineTo(at + bottom - top, top);
    }
    context.stroke();
    context.restore();
  }
  function marksOver(u) {
    const context = u.ctx, { left, top, width, height } = u.bbox;
    const x = (t) => u.valToPos(t / 1e9, "x", true);
    context.save();
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
    // Where no sample was taken, lines only join what is at the ends.
    context.globalAlpha = 0.55;
    context.fillStyle = colour("paper");
    for (const [from, to] of data.pauses || []) context.fillRect(x(from), top, x(to) - x(from), height);
    context.fillStyle = colour("mark");
    for (const mark of data.marks) {
      const at = Math.round(u.valToPos(mark.t / 1e9, "x", true)), wide = (mark.stopping ? 2 : 1) * devicePixelRatio;
      context.globalAlpha = mark.stopping ? 0.9 : 0.55;
      context.fillRect(at - wide / 2, top, wide, height);
    }
    context.restore();
  }
  const key = "timeline";
  const lastDrawn = data.panels.findLastIndex((panel) => panel.series.length > 0);
  function chart(panel, index) {
    const last = index === lastDrawn;
    const panelX = panel.t ? summed(panel.t).map((t) => t / 1e9) : X;
    const key_of = make("div", { class: "key" }, make("h3", {}, panel.title));
    const element = make("div", { class: "panel" }, key_of);
    for (const note of panel.notes) element.append(make("p", { class: "note" }, note));
    plots.append(element);
    if (!panel.series.length) return null;
    const narrow = live.clientWidth < 560;
    const options = {
      width: live.clientWidth,
      height: heightOf(panel, last),
      padding: [6, RIGHT, last ? null : 4, 0],
      cursor: {
        sync: { key: key, setSeries: false, scales: ["x", null], filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
        y: false, drag: { x: true, y: false, setScale: true, dist: 5 },
        bind: { dblclick: () => () => { setView(initial); return null; } },
        points: { size: 6 },
      },
      legend: { live: true, mount: (self, legend) => key_of.append(legend) },
      scales: {
        x: { time: false, min: view[0], max: view[1] },
        y: { range: (u, min, max) => [0, max > 0 ? max * 1.07 : 1] },
      },
      axes: [
        {
          show: true, size: last ? 34 : 0, stroke: colour("grey"), font: "12px system-ui, sans-serif", values: last ? seconds : () => [],
          grid: { stroke: colour("grid"), width: 1 }, ticks: { show: last, stroke: colour("grid"), width: 1 }, space: narrow ? 60 : 80,
        },
        {
          size: LEFT(), stroke: colour("grey"), font: (narrow ? "10.5px" : "12px") + " system-ui, sans-serif", splits: splits, values: ticks, gap: 4,
          grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false },
        },
      ],
      series: [{ label: "at", value: (u, v) => (v === null || v === undefined ? "–" : time(Math.round(v * 1e9))) }].concat(panel.series.map((series) => seriesOf(panel, series))),
      hooks: {
        init: [(u) => { u.panel = panel; }],
        drawClear: [background],
        draw: [marksOver],
        setScale: [(u, name) => { if (name === "x") setView([u.scales.x.min, u.scales.x.max], u); }],
      },
    };
    const u = new uPlot(options, [panelX].concat(lines(panel)), (self, init) => { self.panel = panel; init(); element.append(self.root); });
    u.over.setAttribute("data-panel", panel.title);
    // A wheel alone scrolls the page.
    u.over.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey && !event.metaKey) return;
      event.preventDefault();
      const box = u.over.getBoundingClientRect();
      const share = (event.clientX - box.left) / box.width;
      zoom((event.deltaY || event.deltaX) > 0 ? 1.35 : 1 / 1.35, share);
    }, { passive: false });
    const shade = [make("div", { class: "shade" }), make("div", { class: "shade" }), make("div", { class: "edge" }), make("div", { class: "edge" })];
    u.over.append(...shade);
    shades.push(shade);
    return u;
  }
  function heightOf(panel, last) {
    const room = live.clientWidth < 560 ? 560 : 760;
    const shares = data.panels.reduce((sum, panel) => sum + panel.share, 0);
    return Math.max(90, Math.round((room * panel.share) / shares)) + (last ? 34 : 0);
  }
  function build() {
    charts.forEach((u) => u.destroy());
    plots.textContent = "";
    shades = [];
    charts = data.panels.map(chart).filter((u) => u !== null);
    if (data.pauses) plots.append(make("p", { class: "note" }, "pale: no sample in between"));
    place();
  }

  // ---- zoom ----
  let moving = false;
  function setView(range, from) {
    if (moving) return;
    let [a, b] = range;
    const least = Math.max((everything[1] - everything[0]) / 1e6, 1e-9);
    if (!(b - a > least)) { const middle = (a + b) / 2; a = middle - least / 2; b = middle + least / 2; }
    moving = true;
    view = [a, b];
    charts.forEach((u) => { if (u !== from) u.setScale("x", { min: a, max: b }); });
    moving = false;
    place();
  }
  function zoom(factor, share) {
    const [a, b] = view, at = a + (b - a) * share;
    setView([Math.max(everything[0], at - (at - a) * factor), Math.min(everything[1], at + (b - at) * factor)]);
  }
  function pan(by) {
    const width = view[1] - view[0];
    const a = Math.max(everything[0], Math.min(everything[1] - width, view[0] + by * width));
    setView([a, a + width]);
  }

  // ---- stages over the panels ----
  function short(name) {
    const letters = [...name];
    return letters.length <= 26 ? name : letters.slice(0, 13).join("") + "…" + letters.slice(-12).join("");
  }
  function labels() {
    strip.textContent = "";
    const left = LEFT(), width = live.clientWidth - left - RIGHT, line = 18;
    const x = (t) => left + ((t / 1e9 - view[0]) / (view[1] - view[0])) * width;
    const seen = data.marks.map((mark, index) => ({ mark: mark, number: index + 1, x: x(mark.t) })).filter((one) => one.x >= left - 1 && one.x <= left + width + 1);
    const measure = document.createElement("canvas").getContext("2d");
    measure.font = "12.5px system-ui, sans-serif";
    // Names where they fit in a few rows; else numbers, marks that stand together sharing one label. The numbers are those of the first table.
    const named = seen.map((one) => ({ x: one.x, text: one.number + " " + short(one.mark.name), bold: one.mark.stopping }));
    const fit = (texts, most) => {
      for (let rows = 1; rows <= most; rows++) {
        const placed = stepped(texts, rows, measure, left, width);
        if (placed) return [placed, rows];
      }
      return [null, 1];
    };
    let [placed, rows] = fit(named, 7);
    if (!placed) {
      const groups = [];
      for (const one of seen) {
        const before = groups[groups.length - 1];
        if (before && one.x - before.last < 20 + 7 * String(before.from).length) { before.to = one.number; before.last = one.x; before.bold = before.bold || one.mark.stopping; }
        else groups.push({ from: one.number, to: one.number, x: one.x, last: one.x, bold: one.mark.stopping });
      }
      const numbers = groups.map((group) => ({ x: group.x, text: group.from === group.to ? String(group.from) : group.from + "–" + group.to, bold: group.bold }));
      [placed, rows] = fit(numbers, 3);
    }
    placed = placed || [];
    strip.style.height = rows * line + 4 + "px";
    for (const one of placed) {
      const top = (rows - 1 - one.row) * line;
      const label = make("span", { class: "label" + (one.bold ? " stopping" : "") }, one.text);
      label.style.left = one.at + "px";
      label.style.top = top + "px";
      const stem = make("span", { class: "stem" });
      stem.style.left = Math.round(one.x) + "px";
      stem.style.top = top + 2 + "px";
      stem.style.bottom = "0";
      strip.append(stem, label);
    }
    strip.title = data.marks.map((mark, index) => index + 1 + " " + mark.name + " at " + time(mark.t)).slice(0, 60).join("\n");
  }
  // A label stands to the right of its stem, or to the left where there is no room, in the lowest row in which it meets
  // no other label, hides no stem, and its own stem goes down through no label. Nothing where that cannot be done.
  function stepped(texts, rows, measure, left, width) {
    const sized = texts.map((one) => {
      const size = measure.measureText(one.text).width * (one.bold ? 1.1 : 1) + 8;
      const flipped = one.x + 4 + size > left + width;
      return Object.assign({}, one, { size: size, flipped: flipped, at: flipped ? one.x - size : one.x + 4 });
    });
    // Those to the right of their stems from the last to the first, the others the other way round: so stems are free.
    const order = sized.filter((one) => !one.flipped).reverse().concat(sized.filter((one) => one.flipped));
    const placed = [];
    for (const one of order) {
      if (one.at < 0) return null;
      const meets = (row) => placed.some((other) =>
        (other.row === row && one.at < other.at + other.size && other.at < one.at + one.size) ||
        (other.row > row && one.at - 2 < other.x && other.x < one.at + one.size - 4) ||
        (other.row < row && other.at - 2 < one.x && one.x < other.at + other.size - 4));
      let row = 0;
      while (row < rows && meets(row)) row++;
      if (row === rows) return null;
      placed.push(Object.assign(one, { row: row }));
    }
    return placed;
  }

  // ---- the interval ----
  function name(stop) {
    return stop.name === null ? time(stop.t) : stop.name;
  }
  function place() {
    const left = LEFT(), width = live.clientWidth - left - RIGHT;
    const share = (t) => (t / 1e9 - view[0]) / (view[1] - view[0]);
    const inside = (t) => Math.min(1, Math.max(0, share(t)));
    rail.style.left = left + "px";
    rail.style.width = width + "px";
    const [a, b] = selected.map((stop) => inside(stop.t));
    chosen.style.left = left + a * width + "px";
    chosen.style.width = Math.max(0, b - a) * width + "px";
    handles.forEach((handle, index) => {
      const stop = selected[index];
      handle.style.left = left + inside(stop.t) * width + "px";
      handle.classList.toggle("outside", share(stop.t) < 0 || share(stop.t) > 1);
      handle.setAttribute("aria-valuemin", "0");
      handle.setAttribute("aria-valuemax", String(stops.length - 1));
      handle.setAttribute("aria-valuenow", String(stops.indexOf(stop)));
      handle.setAttribute("aria-valuetext", (stop.name === null ? "" : stop.name + ", ") + time(stop.t));
    });
    for (const [before, after, begin, end] of shades) {
      before.style.left = "0";
      before.style.width = a * 100 + "%";
      after.style.left = b * 100 + "%";
      after.style.right = "0";
      begin.style.left = a * 100 + "%";
      end.style.left = b * 100 + "%";
      begin.hidden = share(selected[0].t) < 0 || share(selected[0].t) > 1;
      end.hidden = share(selected[1].t) < 0 || share(selected[1].t) > 1;
    }
    labels();
  }
  const choices = [make("select", { "aria-label": "begin of the interval" }), make("select", { "aria-label": "end of the interval" })];
  function options() {
    choices.forEach((choice, index) => {
      const all = (index === 0 ? [stops[0]] : []).concat(markStops, index === 1 && lastStop.name === null ? [lastStop] : []);
      choice.textContent = "";
      if (!all.includes(selected[index])) choice.append(make("option", { value: "-1" }, time(selected[index].t)));
      for (const stop of all) {
        const label = (stop === lastStop && stop.name === null ? "end" : name(stop)) + " · " + time(stop.t);
        choice.append(make("option", { value: String(stops.indexOf(stop)) }, label));
      }
      choice.value = all.includes(selected[index]) ? String(stops.indexOf(selected[index])) : "-1";
    });
  }
  function figure(text, value) {
    const cell = make("td", { class: "n" }, text);
    if (value !== null && value !== undefined) { cell.title = String(value); cell.setAttribute("data-value", String(value)); }
    return cell;
  }
  const body = make("tbody");
  const heading = make("h3");
  const about = make("p", { class: "small" });
  function update() {
    const [begin, end] = selected;
    const length = end.t - begin.t;
    heading.textContent = name(begin) + " → " + name(end) + ": " + duration(Math.max(0, length));
    interval.setAttribute("data-begin", String(begin.t));
    interval.setAttribute("data-end", String(end.t));
    // Counters are of the samples' moments, not of the marks'.
    const moment = (stop) => (stop.start ? 0 : stop.row === null ? NaN : T[stop.row]);
    const between = moment(end) - moment(begin);
    body.textContent = "";
    for (const row of figures(begin, end)) {
      if (row.before === null && row.after === null && row.largest === null) continue;
      const mean = row.counter && row.change !== null && between > 0 && row.unit !== "ns" ? (row.change / between) * 1e9 : null;
      const cells = [
        make("th", { scope: "row" }, row.name), figure(change(row.unit, row.change), row.change),
        figure(row.counter ? "" : shown(row.unit, row.largest), row.largest),
        figure(shown(row.unit, row.before), row.before), figure(shown(row.unit, row.after), row.after),
        figure(mean === null ? "" : SHOWN_RATE[row.unit === "bytes" ? "bytes" : "per_second"](mean < 10 ? Number(mean.toPrecision(3)) : Math.round(mean)), null),
      ];
      cells[1].setAttribute("data-figure", "change");
      cells[2].setAttribute("data-figure", "largest");
      const tr = make("tr", { "data-name": row.name }, ...cells);
      body.append(tr);
    }
    options();
  }
  function choose(index, stop) {
    const order = stops.indexOf(stop);
    const other = stops.indexOf(selected[1 - index]);
    // An end does not pass the other.
    if (index === 0 ? order > other : order < other) stop = selected[1 - index];
    if (stop === selected[index]) return;
    selected[index] = stop;
    place();
    update();
  }
  // The nearest stop to a place; marks draw a little.
  function nearest(x) {
    const left = LEFT(), width = live.clientWidth - left - RIGHT;
    const t = (view[0] + ((x - left) / width) * (view[1] - view[0])) * 1e9;
    const pixels = (stop) => (Math.abs(stop.t - t) / 1e9 / (view[1] - view[0])) * width;
    const named = stops.filter((stop) => stop.name !== null && pixels(stop) < 6);
    if (named.length) return named.reduce((a, b) => (pixels(b) < pixels(a) ? b : a));
    let low = 0, high = stops.length - 1;
    while (low < high) { const middle = (low + high) >> 1; if (stops[middle].t < t) low = middle + 1; else high = middle; }
    const before = stops[Math.max(0, low - 1)];
    return Math.abs(before.t - t) <= Math.abs(stops[low].t - t) ? before : stops[low];
  }
  handles.forEach((handle, index) => {
    let held = false, frame = 0, at = 0;
    handle.addEventListener("pointerdown", (event) => {
      held = true;
      handle.setPointerCapture(event.pointerId);
      handle.focus();
      event.preventDefault();
    });
    handle.addEventListener("pointermove", (event) => {
      if (!held) return;
      at = event.clientX - live.getBoundingClientRect().left;
      if (!frame) frame = requestAnimationFrame(() => { frame = 0; choose(index, nearest(at)); });
    });
    const release = () => { held = false; };
    handle.addEventListener("pointerup", release);
    handle.addEventListener("pointercancel", release);
    handle.addEventListener("keydown", (event) => {
      const now = stops.indexOf(selected[index]);
      const page = Math.max(1, Math.round(stops.length / 20));
      const to = {
        ArrowLeft: now - 1, ArrowDown: now - 1, ArrowRight: now + 1, ArrowUp: now + 1, PageDown: now - page, PageUp: now + page, Home: 0, End: stops.length - 1,
      }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      choose(index, stops[Math.min(stops.length - 1, Math.max(0, to))]);
    });
  });
  choices.forEach((choice, index) => choice.addEventListener("change", () => {
    const stop = stops[Number(choice.value)];
    if (!stop) return;
    // Chosen by name, an end takes the other with it.
    const order = stops.indexOf(stop), other = stops.indexOf(selected[1 - index]);
    if (index === 0 && order > other) selected[1] = lastStop;
    if (index === 1 && order < other) selected[0] = stops[0];
    selected[index] = stop;
    place();
    update();
  }));

  // ---- tools ----
  const button = (text, label, act) => {
    const made = make("button", { type: "button", "aria-label": label, title: label }, text);
    made.addEventListener("click", act);
    return made;
  };
  const group = (...parts) => make("span", { class: "group" }, ...parts);
  tools.append(
    group("interval", choices[0], "→", choices[1]),
    group(
      button("−", "zoom out", () => zoom(1.8, 0.5)), button("+", "zoom in", () => zoom(1 / 1.8, 0.5)),
      button("‹", "earlier", () => pan(-0.4)), button("›", "later", () => pan(0.4)),
      button("to interval", "zoom to the interval", () => {
        const [a, b] = selected.map((stop) => stop.t / 1e9), space = Math.max((b - a) * 0.04, 1e-9);
        setView([a - space, b + space]);
      }),
      button("reset", "show what was shown at first", () => setView(initial)),
    ),
  );
  if (everything[1] > initial[1] || everything[0] < initial[0]) tools.lastChild.append(button("whole run", "show the whole run", () => setView(everything)));
  const head = make("tr", {}, make("th", { scope: "col" }, "figure"));
  for (const text of ["change", "largest sample", "at begin", "at end", "mean rate"]) head.append(make("th", { scope: "col", class: "n" }, text));
  const left = data.samples - data.kept;
  about.textContent = "Values are of samples, and an interval ends at samples: what was between two of them may have been more. " +
    (left > 0 ? data.kept + " of " + data.samples + " samples are in this page; the largest of those left out, and what counters grew, are in the figures. " : "") +
    "Drag the two handles, or move them by the arrow keys; drag over a panel to zoom, or turn the wheel with Ctrl or Shift; a double click resets. " +
    "A grey band before a mark: it may have been anywhere in it. Hatched: not known.";
  interval.append(heading, about, make("div", { class: "scroll" }, make("table", { class: "interval" }, make("thead", {}, head), body)));

  build();
  update();
  let width = live.clientWidth;
  new ResizeObserver(() => {
    if (live.clientWidth === width || live.clientWidth === 0) return;
    width = live.clientWidth;
    build();
  }).observe(live);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", build);
  // What is closed is not printed.
  let opened = [];
  addEventListener("beforeprint", () => { opened = [...document.querySelectorAll("details:not([open])")]; opened.forEach((one) => { one.open = true; }); });
  addEventListener("afterprint", () => { opened.forEach((one) => { one.open = false; }); });
})();
