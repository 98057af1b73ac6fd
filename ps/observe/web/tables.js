// Tables that sort by a click on a heading. Rows are reused in place, so that a table does not grow.

import { add, bar, bytes, count, fill, mark, micros, percent, put, stateText, time } from "./format.js";

const ROWS_MAX = 50;

/** Columns: { title, value(item): what sorts, text(item) or draw(cell, item), number, wide, rare: not shown while all are 0 }. */
export class Table {
    constructor(root, columns, { sort = null, descending = true, pick = null, empty }) {
        Object.assign(this, { root, columns, sort, descending, pick, empty, items: [], filter: "" });
        const table = add(root, "table");
        const head = add(add(table, "thead"), "tr");
        this.heads = columns.map((column, index) => {
            const cell = add(head, "th", this.style(column));
            cell.scope = "col";
            const button = add(cell, "button", "", column.title);
            button.type = "button";
            button.addEventListener("click", () => {
                this.descending = this.sort === index ? !this.descending : Boolean(column.number);
                this.sort = index;
                this.render();
            });
            return cell;
        });
        this.body = add(table, "tbody");
        this.more = add(root, "p", "note");
    }

    style(column) {
        return (column.number ? "number " : "") + (column.wide ? "wide" : "");
    }

    show(items) {
        this.items = items;
        this.render();
    }

    render() {
        let items = this.items.filter((item) => this.filter === "" ||
            this.columns.some((c) => c.text && c.text(item).toLowerCase().includes(this.filter)));
        if (this.sort !== null) {
            const value = this.columns[this.sort].value ?? this.columns[this.sort].text;
            const sign = this.descending ? -1 : 1;
            items = items.toSorted((a, b) => {
                const x = value(a) ?? -Infinity, y = value(b) ?? -Infinity;
                return sign * (typeof x === "string" ? x.localeCompare(y, undefined, { numeric: true }) : x - y || 0);
            });
        }
        this.heads.forEach((head, index) => head.ariaSort =
            this.sort !== index ? "none" : this.descending ? "descending" : "ascending");
        this.columns.forEach((column, index) => {
            if (column.rare) this.root.classList.toggle(`without-${index}`, !this.items.some(column.value));
        });
        const shown = items.slice(0, ROWS_MAX);
        while (this.body.rows.length > shown.length) this.body.deleteRow(-1);
        while (this.body.rows.length < shown.length) this.addRow();
        shown.forEach((item, index) => this.renderRow(this.body.rows[index], item));
        put(this.more, items.length === 0 ? (this.filter ? "nothing matches the filter" : this.empty)
            : items.length > ROWS_MAX ? `and ${items.length - ROWS_MAX} more` : "");
    }

    addRow() {
        const row = this.body.insertRow();
        this.columns.forEach((column, index) => {
            const cell = add(row, "td", this.style(column));
            if (index === 0 && this.pick) {
                const button = add(cell, "button", "link");
                button.type = "button";
                button.addEventListener("click", () => this.pick(row.item));
            }
        });
    }

    renderRow(row, item) {
        row.item = item;
        this.columns.forEach((column, index) => {
            const cell = row.cells[index];
            if (column.draw) column.draw(cell, item);
            else put(index === 0 && this.pick ? cell.firstChild : cell, column.text(item));
        });
    }
}

/** Which workers hold up the others, if workers wait for each other: they are the most behind, and for three seconds their clocks have not
 * moved, or they have made less than half the steps of the median worker. */
export class Stragglers {
    constructor() {
        this.workers = new Map(); // name -> { clock, since: when it was last fast enough }
    }

    update(workers, waits, now) {
        const running = workers.filter((w) => w.state === "running" || w.state === "disconnected");
        const rates = running.map((w) => w.steps_s ?? 0).sort((a, b) => a - b);
        const median = rates[Math.floor(rates.length / 2)] ?? 0;
        const lag = Math.max(0, ...running.map((w) => w.lag));
        const earlier = this.workers;
        this.workers = new Map(running.map((w) => {
            const last = earlier.get(w.name);
            const slow = last && (w.clock === last.clock || w.steps_s < median / 2);
            const since = slow ? last.since : now;
            w.straggler = waits && lag > 0 && w.lag === lag && now - since >= 3;
            return [w.name, { clock: w.clock, since }];
        }));
    }
}

function drawShare(cell, item) {
    fill(cell.querySelector(".bar-fill") ?? bar(cell, "inline"), item.share);
    put(cell.querySelector(".share") ?? add(cell, "span", "share"), percent(item.share));
}

const PHASES = ["iteration", "clock", "memory", "backup", "work", "send"];

/** Where the time of a slow request went: a bar of the phases, and the text of those that matter. */
function drawPhases(cell, item) {
    const bar = cell.querySelector(".phases") ?? add(cell, "span", "phases");
    while (bar.children.length < PHASES.length) add(bar, "span", `phase ${PHASES[bar.children.length]}`);
    const parts = PHASES.map((name) => ({ name, us: item.phases?.[`${name}_us`] ?? 0 }));
    parts.forEach(({ us }, index) => {
        bar.children[index].style.width = `${item.total_us > 0 ? Math.min(100, us * 100 / item.total_us) : 0}%`;
    });
    const text = cell.querySelector(".share") ?? add(cell, "span", "share");
    put(text, parts.filter((p) => p.us > 0 && p.us >= item.total_us / 20).sort((a, b) => b.us - a.us)
        .map((p) => `${p.name} ${micros(p.us)}`).join(", "));
}

const WIDE = { wide: true }; // not in a narrow window
const whole = (value) => String(value ?? "–");

function number(title, field, text = count, more = {}) {
    return { title, text: (item) => text(item[field]), value: (item) => item[field], number: true, ...more };
}

export const TABLE_COLUMNS = [
    { title: "table", text: (t) => t.name },
    number("rows", "rows"),
    number("memory", "memory", bytes),
    number("pulled keys/s", "pulled_keys_s"),
    number("pushed keys/s", "pushed_keys_s"),
    number("evicted rows/s", "evicted_keys_s", count, { rare: true }),
    number("waiting keys", "waiting_keys", count, { rare: true }),
];

export const KEY_COLUMNS = [
    { title: "key", text: (k) => k.key },
    { title: "table", text: (k) => k.table },
    number("shard", "shard", whole),
    { title: "share of the table's keys", draw: drawShare, value: (k) => k.share },
];

const TROUBLE = ["left", "running", "expired", "disconnected", "straggler"]; // sorts workers in need of help to the top
const workerState = (w) => (w.straggler ? "straggler" : w.state);

export const WORKER_COLUMNS = [
    { title: "worker", text: (w) => w.name },
    { title: "state", text: workerState, value: (w) => TROUBLE.indexOf(workerState(w)),
        draw: (cell, w) => mark(cell, workerState(w), stateText(w, workerState(w))) },
    number("lag, steps", "lag"),
    number("clock", "clock", whole),
    number("steps/s", "steps_s"),
    number("step p99", "step_p99_us", micros, WIDE),
    number("requests/s", "requests_s", count, WIDE),
    number("in flight", "in_flight", count, WIDE),
    number("reconnects", "reconnects", count, WIDE),
];

export const SLOW_COLUMNS = [
    { title: "newest", text: (r) => time(r.time), value: (r) => r.time },
    number("requests", "count", whole),
    number("longest", "total_us", micros),
    { title: "where its time went", draw: drawPhases, value: (r) => r.total_us },
    { title: "operation", text: (r) => `${r.op}${r.table ? ` ${r.table}` : ""}` },
    number("keys", "keys"),
    { title: "client", text: (r) => r.client },
    number("shard", "shard", whole, WIDE),
    { title: "server", text: (r) => r.server, ...WIDE },
];

export const EVENT_COLUMNS = [
    { title: "time", text: (e) => time(e.time), value: (e) => e.time },
    { title: "level", text: (e) => e.level, draw: (cell, e) => mark(cell, e.level) },
    { title: "process", text: (e) => e.process, ...WIDE },
    { title: "event", text: (e) => e.text },
];
