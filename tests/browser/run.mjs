// report.html and compare.html in a real browser: nothing is fetched, nothing of a run is run, and the figures of an interval are those of
// the account.
//
// Usage: node run.mjs STAGEMARK [--run FOLDER]... [--screenshots FOLDER]
//
// STAGEMARK makes the pages from fixtures/runs, and from runs that are made up here. The browser is CHROMIUM, or
// /usr/bin/chromium. What package.json names is looked for below STAGEMARK_BROWSER, or here.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
const root = path.resolve(here, "../..");
const { chromium } = createRequire(path.join(process.env.STAGEMARK_BROWSER || here, "package.json"))("playwright-core");
const [stagemark, ...rest] = process.argv.slice(2);
assert.ok(stagemark, "usage: node run.mjs STAGEMARK [--run FOLDER]... [--screenshots FOLDER]");
const named = (option) => rest.flatMap((word, index) => (word === option ? [rest[index + 1]] : []));
const screenshots = named("--screenshots")[0];
const scratch = fs.mkdtempSync(path.join(os.tmpdir(), "stagemark-browser-"));
// Whatever comes of it.
process.on("exit", () => fs.rmSync(scratch, { recursive: true, force: true }));
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => process.exit(1));

// ---- runs ----
const fixture = (name) => path.join(root, "fixtures/runs", name);
function report(folder, name) {
  const out = path.join(scratch, "reports", name);
  execFileSync(stagemark, ["report", folder, "--out", out], { stdio: ["ignore", "ignore", "inherit"] });
  return { name: name, folder: folder, page: path.join(out, "report.html"), stages: csv(path.join(out, "stages.csv")) };
}
function csv(file) {
  const rows = [];
  let row = [], field = "", quoted = false;
  const text = fs.readFileSync(file, "utf8");
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (quoted) {
      if (c !== '"') field += c;
      else if (text[i + 1] === '"') { field += '"'; i++; } else quoted = false;
    } else if (c === '"') quoted = true;
    else if (c === ",") { row.push(field); field = ""; }
    else if (c === "\n") { row.push(field.replace(/\r$/, "")); rows.push(row); row = []; field = ""; }
    else field += c;
  }
  const [header, ...cells] = rows;
  return cells.map((row) => Object.fromEntries(header.map((name, index) => [name, row[index]])));
}
function copied(name, as, change) {
  const folder = path.join(scratch, "runs", as);
  fs.cpSync(fixture(name), folder, { recursive: true });
  const meta = JSON.parse(fs.readFileSync(path.join(folder, "run.json"), "utf8"));
  change(meta, folder);
  fs.writeFileSync(path.join(folder, "run.json"), JSON.stringify(meta));
  return folder;
}

const HOSTILE = "</script><script>window.harmed=1</script><img src=x onerror=\"window.harmed=1\">'\"{{data}}\u202e\u001b[31m\u0000&lt;";
const hostile = copied("lazy", "hostile", (meta, folder) => {
  meta.argv = ["/bin/" + HOSTILE, HOSTILE];
  meta.directory = meta.started = meta.stages.name = meta.condition.artifacts = HOSTILE;
  meta.warnings = meta.losses = [HOSTILE];
  meta.environment = { [HOSTILE]: HOSTILE };
  meta.host = { cpu_model: HOSTILE, container: [HOSTILE] };
  meta.absent.forEach((absent) => { absent.reason = HOSTILE; });
  for (const artifact of meta.artifacts) {
    artifact.path = artifact.real_path = "/m/" + HOSTILE;
    artifact.bytes_by_dtype = { [HOSTILE]: 1 };
    artifact.state = artifact.filesystem = HOSTILE;
  }
  meta.stages.stage.forEach((stage) => { stage.name += HOSTILE; });
  meta.until += HOSTILE;
  const events = path.join(folder, "events.csv");
  const quoted = '"' + HOSTILE.replaceAll('"', '""') + '"';
  const text = fs.readFileSync(events, "utf8").replace(/,mark,,([a-z_]+),/g, (_, name) => ",mark,,\"" + name + quoted.slice(1) + ",");
  fs.writeFileSync(events, text);
});
// Many samples, with peaks that fall into the middle of nowhere.
const long = copied("lazy", "long", (meta, folder) => {
  const [header, ...rows] = fs.readFileSync(path.join(folder, "samples.csv"), "utf8").trim().split("\n").map((line) => line.split(","));
  const column = (name) => header.indexOf(name);
  const end = Number(rows.at(-1)[0]);
  const marks = new Map(rows.map((row) => [row[0], row]));
  const count = 60000;
  let random = 1;
  const next = () => (random = (random * 48271) % 2147483647) / 2147483647;
  for (let i = 0; i < count; i++) {
    const t = String(Math.floor((i / count) * end));
    const row = rows.findLast((row) => Number(row[0]) <= Number(t)).slice();
    row[0] = t;
    const extra = Math.floor(next() * 1e7) + (i % 9973 === 5000 ? 3e9 : 0);
    row[column("rss_anon_bytes")] = String(Number(row[column("rss_anon_bytes")]) + extra);
    row[column("rss_bytes")] = String(Number(row[column("rss_bytes")]) + extra);
    row[column("swap_bytes")] = String(Math.floor(next() * 1e6));
    if (!marks.has(t)) marks.set(t, row);
  }
  const all = [...marks.values()].sort((a, b) => Number(a[0]) - Number(b[0]));
  fs.writeFileSync(path.join(folder, "samples.csv"), [header, ...all].map((row) => row.join(",")).join("\n") + "\n");
});
const trimmed = (name, as, samples) => copied(name, as, (meta, folder) => {
  const lines = fs.readFileSync(path.join(folder, "samples.csv"), "utf8").split("\n");
  fs.writeFileSync(path.join(folder, "samples.csv"), lines.slice(0, samples + 1).join("\n") + "\n");
});

// ---- the browser ----
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
let checks = 0;
const equal = (made, wanted, what) => { checks++; assert.deepEqual(made, wanted, what); };
const holds = (condition, what) => { checks++; assert.ok(condition, what); };

// Opens a page and gives it to `use`; whatever it complained of is an error.
async function open(file, options, use) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 1000 }, ...options });
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (message) => complaints.push(`console: ${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => complaints.push(`error: ${error.stack}`));
  page.on("dialog", (dialog) => { complaints.push("a dialog"); dialog.dismiss(); });
  page.on("request", (request) => {
    if (!/^data:image\/svg\+xml/.test(request.url()) && request.url() !== "file://" + file) complaints.push(`request: ${request.url()}`);
  });
  if (options?.javaScriptEnabled !== false) {
    await page.addInitScript(() => {
      window.violations = [];
      addEventListener("securitypolicyviolation", (event) => window.violations.push(event.violatedDirective + " " + event.blockedURI));
    });
  }
  await page.goto("file://" + file);
  await use(page);
  if (options?.javaScriptEnabled !== false) {
    equal(await page.evaluate(() => window.violations), [], `${file}: violations of the policy`);
    equal(await page.evaluate(() => window.harmed), undefined, `${file}: something of the run was run`);
  }
  equal(complaints, [], file);
  await context.close();
}
async function shot(page, name, fullPage = false) {
  if (!screenshots) return;
  fs.mkdirSync(screenshots, { recursive: true });
  await page.screenshot({ path: path.join(screenshots, name + ".png"), fullPage });
}

const figures = (page) => page.evaluate(() => {
  const value = (cell) => (cell.hasAttribute("data-value") ? cell.getAttribute("data-value") : "");
  const rows = [...document.querySelectorAll("#interval tbody tr")];
  return Object.fromEntries(rows.map((row) => [row.getAttribute("data-name"), {
    change: value(row.querySelector("[data-figure=change]")), largest: value(row.querySelector("[data-figure=largest]")),
  }]));
});
const data = (page) => page.evaluate(() => JSON.parse(document.getElementById("data").textContent));

// What the account has of the interval that ends at a stage, against what the page shows.
function same(shown, row, before, what) {
  let compared = 0;
  for (const [name, figure] of Object.entries(shown)) {
    const delta = row["delta_" + name];
    if (delta !== undefined) {
      equal(figure.change, delta, `${what}: growth of ${name}`);
      compared++;
      continue;
    }
    if (before) equal(figure.change, row["change_" + name], `${what}: change of ${name}`);
    // Where the kernel has a mark of its own, the low bound may be more than any sample.
    const basis = row[`span_peak_${name}_basis`];
    if (basis === "sampled") equal(figure.largest, row[`span_peak_${name}_low`], `${what}: largest ${name}`);
    else if (basis) holds(figure.largest === "" || BigInt(figure.largest) <= BigInt(row[`span_peak_${name}_low`]), `${what}: largest ${name}`);
    compared++;
  }
  // What the account knows is on the page.
  for (const column of ["minor_faults", "read_bytes"]) {
    if (row["delta_" + column] !== "") holds(shown[column] !== undefined, `${what}: ${column} is shown`);
  }
  return compared;
}

// Where a time stands on the page, as the axis has it.
async function place(page, t) {
  const { view } = await data(page);
  const rail = await page.locator(".track .rail").boundingBox();
  return { x: rail.x + ((t - view[0]) / (view[1] - view[0])) * rail.width, y: rail.y + rail.height / 2, left: rail.x, width: rail.width };
}
async function drag(page, handle, t) {
  const box = await page.locator("#" + handle).boundingBox();
  const to = await place(page, t);
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await page.mouse.down();
  await page.mouse.move(to.x + 9, to.y, { steps: 3 });
  await page.mouse.move(to.x, to.y, { steps: 2 });
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  await page.mouse.up();
}

async function intervals(made) {
  const reached = made.stages.filter((row) => row.t_ns !== "");
  let compared = 0;
  await open(made.page, {}, async (page) => {
    const { marks, view } = await data(page);
    equal(marks.length, reached.length, `${made.name}: marks`);
    await page.locator(".track").scrollIntoViewIfNeeded();
    const near = [];
    for (const mark of marks) near.push((await place(page, mark.t)).x);
    const [begin, end] = [page.locator(".tools select").nth(0), page.locator(".tools select").nth(1)];
    // Chosen by name: every interval of the table.
    for (let i = 0; i < marks.length; i++) {
      const pick = async (select, index) => {
        const options = await select.locator("option").allTextContents();
        const place = index < 0 ? 0 : options.length - (options.length - (await first(select))) + index;
        await select.selectOption({ index: place });
      };
      const first = (select) => select.locator("option").evaluateAll((all) => all.findIndex((option) => option.value !== "-1" && !option.textContent.startsWith("start ·")));
      await pick(end, i);
      await pick(begin, i - 1);
      compared += same(await figures(page), reached[i], i > 0, `${made.name}: to ${marks[i].name}, chosen`);
    }
    // Dragged: those that stand alone, and in view.
    const alone = (index) => near.every((x, other) => other === index || Math.abs(x - near[index]) > 14) && marks[index].t > (view[1] - view[0]) / 50 && marks[index].t < view[1];
    for (let i = 0; i < marks.length; i++) {
      if (!alone(i) || (i > 0 && !alone(i - 1))) continue;
      await begin.focus();
      await page.locator("#begin").focus();
      await page.keyboard.press("Home");
      await drag(page, "end", marks[i].t);
      if (i > 0) await drag(page, "begin", marks[i - 1].t);
      const heading = await page.locator("#interval h3").textContent();
      holds(heading.startsWith(`${i > 0 ? marks[i - 1].name : "start"} → ${marks[i].name}: `), `${made.name}: dragged to ${heading}`);
      compared += same(await figures(page), reached[i], i > 0, `${made.name}: to ${marks[i].name}, dragged`);
    }
  });
  return compared;
}

// ---- the tests ----
const names = ["lazy", "heap", "fifteen-stages", "absent", "ml-216"];
const reports = Object.fromEntries(names.map((name) => [name, report(fixture(name), name)]));
reports.long = report(long, "long");
reports.hostile = report(hostile, "hostile");
reports.one = report(trimmed("lazy", "one-sample", 1), "one-sample");
reports.none = report(trimmed("lazy", "no-sample", 0), "no-sample");

// ---- comparisons ----
function compared(name, folders, ...options) {
  const out = path.join(scratch, "comparisons", name);
  let status = 0;
  try {
    execFileSync(stagemark, ["compare", ...folders, "--out", out, ...options], { stdio: "ignore" });
  } catch (error) {
    status = error.status;
  }
  return { name: "compare-" + name, page: path.join(out, "compare.html"), status, out };
}
// Six runs of two ways of loading by turns, whose times differ; the last run failed.
function series(name) {
  const folder = path.join(scratch, "series", name);
  const arms = ["mapped", "read"], runs = [], order = [];
  for (let round = 0; round < 3; round++) {
    for (const arm of round % 2 ? [1, 0] : [0, 1]) {
      const number = runs.length + 1;
      order.push(arms[arm]);
      runs.push({ number, arm: arms[arm], round, warmup: false, state: number === 6 ? "failed" : "done", status: number === 6 ? 7 : 0, said: HOSTILE, took_ns: 1,
        outputs: [{ of: "stdout", sha256: "5a".repeat(32) }, { of: "o.*", sha256: null, reason: HOSTILE }] });
      const run = path.join(folder, "runs", String(number).padStart(2, "0") + "-" + arms[arm]);
      fs.cpSync(fixture(arm ? "read" : "mmap"), run, { recursive: true });
      const events = path.join(run, "events.csv");
      const later = (_, t, rest) => String(Number(t) + [0, 40e6, 700e6][round]) + rest;
      fs.writeFileSync(events, fs.readFileSync(events, "utf8").replace(/^(\d+)(,[^\n]*first_response)/gm, later));
    }
  }
  const entry = (name, mode) => ({ name, argv: ["python3", "serve.py", mode], environment: {} });
  fs.writeFileSync(path.join(folder, "series.json"), JSON.stringify({
    schema: 1, stagemark: "0.1.0", started: "", state: "failed", problem: HOSTILE, arms: [entry(arms[0], "--mmap"), entry(arms[1], "--read")],
    order, cache: "as-is", until: "first_response", same_output: ["stdout", "o.*"], identity: [], runs,
  }));
  return folder;
}
const pair = [fixture("mmap"), fixture("read")];
const hostileTwin = path.join(scratch, "runs", "hostile-twin");
fs.cpSync(hostile, hostileTwin, { recursive: true });
fs.writeFileSync(path.join(hostileTwin, "run.json"), fs.readFileSync(path.join(hostile, "run.json"), "utf8").replaceAll("/m/", "/n/"));
const comparisons = [
  compared("two", pair, "--vary", "argv"),
  compared("unlike", [fixture("mmap"), fixture("read"), fixture("mmap")]),
  compared("published", [fixture("pr-before"), fixture("pr-after")], "--vary", "commit"),
  compared("series", [series("of-six")], "--vary", "argv"),
  compared("refused", [fixture("at-mapping"), fixture("after-placement")]),
  compared("hostile", [hostile, hostileTwin]),
  compared("hostile-refused", [hostile, fixture("mmap")]),
];
const given = named("--run").map((folder, index) => report(folder, `given-${index}`));

const test = async (what, act) => {
  const before = checks;
  await act();
  console.log(`ok: ${what} (${checks - before} checks)`);
};

await test("figures of an interval are those of the account", async () => {
  for (const made of [reports.lazy, reports.heap, reports["fifteen-stages"], reports.absent, reports["ml-216"], reports.long, ...given]) {
    holds((await intervals(made)) > 0, `${made.name}: something was compared`);
  }
  await open(reports.long.page, {}, async (page) => {
    const { samples, kept } = await data(page);
    holds(samples > 60000 && kept <= 4000, `of ${samples} samples ${kept} were kept`);
  });
});

await test("keys move the ends by a sample, and values are those of samples.csv", async () => {
  const samples = csv(path.join(fixture("lazy"), "samples.csv"));
  await open(reports.lazy.page, {}, async (page) => {
    await page.locator("#end").focus();
    await page.keyboard.press("End");
    await page.locator("#begin").focus();
    await page.keyboard.press("Home");
    for (let i = 0; i < 6; i++) await page.keyboard.press("ArrowRight");
    const t = await page.locator("#interval").getAttribute("data-begin");
    const row = samples.findIndex((sample) => sample.t_ns === t);
    holds(row > 0, `the begin is at a sample: ${t}`);
    const shown = await figures(page);
    const last = samples.at(-1);
    equal(shown.minor_faults.change, String(Number(last.minor_faults) - Number(samples[row].minor_faults)), "growth of faults");
    equal(shown.rss_bytes.largest, String(Math.max(...samples.slice(row).map((sample) => Number(sample.rss_bytes)))), "largest resident set");
    await page.keyboard.press("End");
    equal(await page.locator("#interval").getAttribute("data-begin"), last.t_ns, "an end does not pass the other");
    equal(await page.locator("#begin").getAttribute("aria-valuenow"), await page.locator("#end").getAttribute("aria-valuenow"), "the slider says so");
  });
});

await test("values under the pointer, in every panel at once", async () => {
  await open(reports.lazy.page, {}, async (page) => {
    const values = () => page.locator(".u-legend .u-value").allTextContents();
    holds((await values()).every((text) => text === "–" || text === "--"), "nothing is shown before");
    await page.locator(".u-over").first().hover({ position: { x: 700, y: 60 } });
    const shown = await values();
    holds(shown.filter((text) => / s$/.test(text)).length === 4, `a time in each panel: ${shown}`);
    holds(shown.includes("256 MiB"), `the payload: ${shown}`);
    await shot(page, "hover");
  });
});

await test("zoom by drag, by buttons, by wheel; back by double click", async () => {
  await open(reports.lazy.page, {}, async (page) => {
    const over = page.locator(".u-over").first();
    await over.scrollIntoViewIfNeeded();
    const end = async () => (await page.locator("#end").boundingBox()).x;
    const before = await end();
    const box = await over.boundingBox();
    await page.mouse.move(box.x + box.width * 0.5, box.y + 50);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.97, box.y + 50, { steps: 5 });
    await page.mouse.up();
    const zoomed = await end();
    holds(Math.abs(zoomed - before) > 10, `dragged: ${before} ${zoomed}`);
    await shot(page, "zoomed");
    await over.dblclick({ position: { x: 300, y: 50 } });
    holds(Math.abs((await end()) - before) < 1, "reset by double click");
    await page.getByRole("button", { name: "zoom in" }).click();
    holds(Math.abs((await end()) - before) > 10, "by button");
    await page.getByRole("button", { name: "show what was shown at first" }).click();
    holds(Math.abs((await end()) - before) < 1, "reset by button");
    await page.mouse.move(box.x + box.width * 0.5, box.y + 50);
    await page.keyboard.down("Control");
    await page.mouse.wheel(0, -200);
    await page.keyboard.up("Control");
    await page.waitForFunction((x) => Math.abs(document.getElementById("end").getBoundingClientRect().x - x) > 10, before);
    checks++;
  });
});

await test("what a run holds is inert", async () => {
  await open(reports.hostile.page, {}, async (page) => {
    equal(await page.locator("script").count(), 3, "scripts");
    equal(await page.locator("img").count(), 1, "pictures");
    holds((await page.locator("h1").textContent()).includes("</script>") === false, "the name is the program's");
    holds((await page.locator(".command").textContent()).includes("<img src=x onerror="), "the command is shown as text");
    holds(!/[\u202e\u0000-\u0008\u001b]/.test(await page.evaluate(() => document.body.innerText)), "nothing turns writing round");
    await shot(page, "hostile", true);
  });
});

await test("labels of stages do not meet, and stay within", async () => {
  for (const made of [reports["fifteen-stages"], reports.lazy, reports.hostile, ...given]) {
    for (const width of [1280, 820, 390]) {
      await open(made.page, { viewport: { width, height: 900 } }, async (page) => {
        const boxes = await page.locator(".strip .label").evaluateAll((all) => all.map((one) => { const { left, right, top, bottom } = one.getBoundingClientRect(); return { left, right, top, bottom, text: one.textContent }; }));
        const strip = await page.locator(".strip").evaluate((one) => { const { left, right } = one.getBoundingClientRect(); return { left, right }; });
        holds(boxes.length > 0, `${made.name} ${width}: labels`);
        for (const [index, one] of boxes.entries()) {
          holds(one.left >= strip.left - 1 && one.right <= strip.right + 1, `${made.name} ${width}: ${one.text} leaves the page`);
          for (const other of boxes.slice(index + 1)) {
            const apart = one.right <= other.left + 1 || other.right <= one.left + 1 || one.bottom <= other.top + 1 || other.bottom <= one.top + 1;
            holds(apart, `${made.name} ${width}: ${one.text} meets ${other.text}`);
          }
        }
      });
    }
  }
});

await test("a telephone's page scrolls one way; tables scroll by themselves", async () => {
  for (const made of [...Object.values(reports), ...given]) {
    await open(made.page, { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true }, async (page) => {
      const wide = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      equal(wide[0], 390, `${made.name}: ${wide}`);
      await shot(page, `phone-${made.name}`, true);
    });
  }
});

await test("light and dark", async () => {
  for (const colorScheme of ["light", "dark"]) {
    for (const made of [...Object.values(reports), ...given]) {
      await open(made.page, { colorScheme }, async (page) => {
        const background = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
        holds((background === "rgb(255, 255, 255)") === (colorScheme === "light"), background);
        await shot(page, `${colorScheme}-${made.name}`, true);
      });
    }
  }
  await open(reports.lazy.page, { colorScheme: "light" }, async (page) => {
    await page.emulateMedia({ colorScheme: "dark" });
    equal(await page.locator(".panel canvas").count(), 4, "drawn anew when it changes");
  });
});

await test("on paper, and without scripts, the picture stands in for the interactive timeline", async () => {
  await open(reports.lazy.page, {}, async (page) => {
    equal(await page.locator("figure.static").isVisible(), false, "on a screen");
    await page.emulateMedia({ media: "print" });
    equal([await page.locator("figure.static").isVisible(), await page.locator("#live").isVisible()], [true, false], "on paper");
    if (screenshots) await page.pdf({ path: path.join(screenshots, "lazy.pdf"), format: "A4" });
  });
  await open(reports.lazy.page, { javaScriptEnabled: false }, async (page) => {
    equal(await page.locator("figure.static img").isVisible(), true, "without scripts");
    const wide = await page.locator("figure.static img").evaluate((image) => image.naturalWidth).catch(() => null);
    holds(wide === null || wide > 0, "the picture is one");
    equal(await page.locator("table.lines tbody tr").count(), 3, "one line a stage");
  });
  await open(reports.none.page, {}, async (page) => {
    equal(await page.locator("figure.static").isVisible(), true, "without samples");
  });
});

await test("launches side by side", async () => {
  equal(comparisons.map((made) => [made.name, made.status]), [["compare-two", 0], ["compare-unlike", 0], ["compare-published", 0], ["compare-series", 0], ["compare-refused", 3], ["compare-hostile", 0], ["compare-hostile-refused", 3]], "exit statuses");
  for (const made of comparisons) {
    const refused = made.status === 3;
    await open(made.page, {}, async (page) => {
      equal(await page.locator("script").count(), 0, `${made.name}: scripts`);
      equal(await page.locator("img").count(), refused ? 0 : 1, `${made.name}: pictures`);
      holds(!/[\u202e\u0000-\u0008\u001b]/.test(await page.evaluate(() => document.body.innerText)), `${made.name}: nothing turns writing round`);
      equal(await page.locator(".box").count(), refused ? 1 : 2, `${made.name}: boxes`);
      if (refused) {
        equal(await page.locator(".card, .figure, #figures, #pairs").count(), 0, `${made.name}: no figures`);
        holds(!/\d\s*(ns|µs|ms|s|B|KiB|MiB|GiB|%)\b/.test(await page.locator("body").innerText()), `${made.name}: no figures in words`);
        equal(fs.existsSync(path.join(made.out, "compare.csv")), false, `${made.name}: no table`);
        return;
      }
      const wide = await page.locator("figure img").evaluate((image) => image.naturalWidth);
      holds(wide > 0, `${made.name}: the picture is drawn`);
      // What is under the pointer is what compare.csv has.
      const rows = csv(path.join(made.out, "compare.csv"));
      const end = rows.at(-1).stage;
      const shown = await page.locator("#figures table").evaluateAll((tables) => tables.flatMap((table) => [...table.querySelectorAll("tbody")].slice(0, 1)).flatMap((stage) => [...stage.querySelectorAll("tr:not(.group)")]).map((row) => [row.querySelector("th").title, row.querySelector("td").title]));
      const first = rows.filter((row) => row.stage === end && row.arm === rows[0].arm && row.run === "1");
      equal(shown.map(([name]) => name).sort(), first.map((row) => row.metric).sort(), `${made.name}: a row a figure`);
      for (const [name, title] of shown) {
        const { value, low, high, reason } = first.find((row) => row.metric === name);
        const exact = low === high && value !== "";
        holds(title.includes(reason ? "absent: " : exact ? value : `at least ${low || "not known"}, at most ${high || "not known"}`), `${made.name}: ${name}: ${title}`);
      }
    });
    await open(made.page, { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true }, async (page) => {
      equal(await page.evaluate(() => document.documentElement.scrollWidth), 390, `${made.name}: a telephone's page scrolls one way`);
      await shot(page, `phone-${made.name}`, true);
    });
    for (const colorScheme of ["light", "dark"]) {
      await open(made.page, { colorScheme }, async (page) => {
        const background = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
        holds((background === "rgb(255, 255, 255)") === (colorScheme === "light"), background);
        await shot(page, `${colorScheme}-${made.name}`, true);
        if (screenshots && colorScheme === "light") await page.pdf({ path: path.join(screenshots, made.name + ".pdf"), format: "A4" });
      });
    }
  }
});

await browser.close();
console.log(`all passed: ${checks} checks`);
