"use strict";
// Tables of many rows: the rows are in a JSON script element, by column; the page contains only visible rows.
// All values are shown as text, never as markup.

const SPARE = 12; // rows drawn above and below the visible ones
// letters above which the middle of a name is omitted; its end may be a partition number
const LONG = matchMedia("(max-width: 40rem)").matches ? 28 : 60;
const FEW = 8; // rows up to which a table needs no search
const collator = new Intl.Collator(undefined, { numeric: true });

class Column {
  constructor(given, rows) {
    Object.assign(this, given);
    this.codes = given.codes || null;
    this.rows = rows;
    this.lower = null;
  }
  code(row) { return this.codes ? this.codes[row] : row; }
  value(row) { return this.values[this.code(row)]; }
  text(row) {
    const value = this.value(row);
    if (value === null || value === undefined) return "";
    return this.kind === "number" && !Number.isInteger(value) ? value.toFixed(3) : String(value);
  }
  // Which of the distinct values satisfy a test; each value is tested once.
  matching(test) {
    if (!this.lower) this.lower = this.values.map((value) => (value === null ? "" : String(value).toLowerCase()));
    return Uint8Array.from(this.lower, (value) => (test(value) ? 1 : 0));
  }
  ranks() {
    const order = this.values.map((_, number) => number);
    const compare = this.kind === "number"
      ? (a, b) => (this.values[a] ?? -Infinity) - (this.values[b] ?? -Infinity)
      : (a, b) => collator.compare(this.values[a], this.values[b]);
    order.sort(compare);
    const ranks = new Float64Array(order.length);
    // equal values have equal ranks, so that sorting is stable
    order.forEach((number, place) => {
      ranks[number] = place > 0 && compare(number, order[place - 1]) === 0 ? ranks[order[place - 1]] : place;
    });
    return ranks;
  }
}

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Only single words, such as names; sentences are cut at the end by the style.
function shortened(text) {
  return text.length > LONG && !/\s/.test(text) ? `${text.slice(0, LONG / 2)}…${text.slice(1 - LONG / 2)}` : text;
}

class RowTable {
  constructor(section) {
    this.section = section;
    const island = JSON.parse(document.getElementById("rows-" + section.dataset.rows).textContent);
    this.size = island.rows;
    this.columns = island.columns.map((given) => new Column(given, island.rows));
    this.words = [];
    this.broker = "";
    this.chosen = new Map();
    this.sorted = null;
    this.shown = [];
    this.build(section.dataset.caption);
    this.select();
  }

  build(caption) {
    this.controls = element("div", { class: "controls" });
    this.field("Search", element("input", { type: "search" }), (value) => {
      this.words = value.toLowerCase().split(/\s+/).filter(Boolean);
    });
    if (this.columns.some((column) => column.kind === "brokers")) {
      const attributes = { class: "broker", inputmode: "numeric", placeholder: "any" };
      this.field("Broker", element("input", attributes), (value) => { this.broker = value.trim(); });
    }
    this.columns.filter((column) => column.choices).forEach((column) => {
      const options = [...column.values].sort(collator.compare).map((value) => new Option(value || "(none)", "=" + value));
      const chooser = element("select", {}, new Option("all", ""), ...options);
      this.field(column.label, chooser, (value) => this.chosen.set(column, value));
    });
    this.count = element("p", { class: "count", "aria-live": "polite" });
    this.body = element("tbody");
    this.heads = this.columns.map((column, number) => {
      const button = element("button", { type: "button" }, column.label);
      button.addEventListener("click", () => this.sort(number));
      return element("th", { scope: "col", class: column.kind }, button);
    });
    this.table = element("table", { "aria-label": caption },
      element("thead", {}, element("tr", {}, ...this.heads)), this.body);
    this.view = element("div", { class: "window", tabindex: "0", role: "region", "aria-label": caption }, this.table);
    this.view.addEventListener("scroll", () => requestAnimationFrame(() => this.draw()));
    if (this.size > FEW) this.section.append(this.controls, this.count);
    this.section.append(this.view);
  }

  field(label, input, take) {
    input.addEventListener("input", () => { take(input.value); this.select(); });
    this.controls.append(element("label", {}, label, input));
  }

  // Every word in some column, the broker in a column of brokers, and the selected values.
  tests() {
    const tests = this.words.map((word) => this.columns.map((column) => [column, column.matching((v) => v.includes(word))]));
    if (this.broker) {
      // only numbers are broker ids
      const named = /^[0-9]+$/.test(this.broker) ? new RegExp(`(?<![0-9])${this.broker}(?![0-9])`) : /^\b$/;
      const about = this.columns.filter((column) => column.kind === "brokers");
      tests.push(about.map((column) => [column, column.matching((value) => named.test(value))]));
    }
    for (const [column, value] of this.chosen) {
      if (value) tests.push([[column, Uint8Array.from(column.values, (each) => ("=" + each === value ? 1 : 0))]]);
    }
    return tests;
  }

  select() {
    const tests = this.tests();
    const rows = [];
    for (let row = 0; row < this.size; row++) {
      if (tests.every((columns) => columns.some(([column, marks]) => marks[column.code(row)]))) rows.push(row);
    }
    if (this.sorted) {
      const { column, ranks, way } = this.sorted;
      rows.sort((a, b) => way * (ranks[column.code(a)] - ranks[column.code(b)]) || a - b);
    }
    this.shown = rows;
    this.count.textContent = rows.length === this.size
      ? `${this.size.toLocaleString("en")} rows`
      : `${rows.length.toLocaleString("en")} of ${this.size.toLocaleString("en")} rows`;
    this.table.setAttribute("aria-rowcount", rows.length + 1);
    this.view.scrollTop = 0;
    this.draw();
  }

  sort(number) {
    const column = this.columns[number];
    const way = this.sorted && this.sorted.column === column ? -this.sorted.way : 1;
    const ranks = this.sorted && this.sorted.column === column ? this.sorted.ranks : column.ranks();
    this.sorted = { column, ranks, way };
    this.heads.forEach((head, each) => {
      if (each === number) head.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
    this.select();
  }

  draw() {
    const high = this.high || 30;
    const first = Math.max(0, Math.floor(this.view.scrollTop / high) - SPARE);
    const last = Math.min(this.shown.length, first + Math.ceil(this.view.clientHeight / high || 15) + 2 * SPARE);
    const lines = [this.space(first * high)];
    for (let place = first; place < last; place++) lines.push(this.line(this.shown[place], place));
    lines.push(this.space((this.shown.length - last) * high));
    this.body.replaceChildren(...lines);
    const drawn = this.body.querySelector("tr[aria-rowindex]");
    if (this.high || !drawn) return;
    this.high = drawn.getBoundingClientRect().height || undefined;
    if (this.high) this.draw(); // the height of the rows was an estimate
  }

  space(high) {
    const cell = element("td", { class: "space", colspan: this.columns.length });
    cell.style.height = `${high}px`;
    return element("tr", { "aria-hidden": "true" }, cell);
  }

  line(row, place) {
    const cells = this.columns.map((column) => {
      const text = column.text(row);
      const cell = element("td", column.kind === "number" ? { class: "number" } : {}, shortened(text));
      if (text.length > 40) cell.title = text;
      return cell;
    });
    return element("tr", { "aria-rowindex": place + 2 }, ...cells);
  }
}

document.querySelectorAll("[data-rows]").forEach((section) => new RowTable(section));

// The age of the snapshot now, after its age when the page was generated.
document.querySelectorAll("time[data-age]").forEach((taken) => {
  const minutes = Math.round((Date.now() - Date.parse(taken.dateTime)) / 60000);
  const words = minutes < 120 ? `${minutes} min` : minutes < 2880 ? `${Math.round(minutes / 60)} h`
    : `${Math.round(minutes / 1440)} days`;
  document.getElementById(taken.dataset.age).textContent = `; ${words} old now`;
});
