// The live page of a job: polls the coordinator once a second and shows what it reports.

import { Charts, History, SERIES, Tile } from "./charts.js";
import { add, LATE_S, mark, put, span } from "./format.js";
import { ShardMap } from "./map.js";
import { Training } from "./training.js";
import { EVENT_COLUMNS, KEY_COLUMNS, SLOW_COLUMNS, Stragglers, Table, TABLE_COLUMNS, WORKER_COLUMNS } from "./tables.js";

const POLL_MS = 1000;
const TIMEOUT_MS = 5000;
const TOKEN = "starling-token";

const $ = (id) => document.getElementById(id);
const now = () => performance.now() / 1000;

const training = new Training($("training"));
const tiles = SERIES.map((series) => new Tile($("tiles"), series));
const map = new ShardMap($("servers"), select);
const charts = new Charts($("charts"));
const tables = new Table($("tables"), TABLE_COLUMNS,
    { sort: 0, descending: false, pick: (t) => select(`table:${t.name}`), empty: "no table yet" });
const keys = new Table($("keys"), KEY_COLUMNS, { sort: 3, empty: "no hot keys" });
const workers = new Table($("workers"), WORKER_COLUMNS, { sort: 1, empty: "no worker yet" });
const slow = new Table($("slow"), SLOW_COLUMNS, { empty: "none" });
const events = new Table($("events"), EVENT_COLUMNS, { empty: "none" });
const stragglers = new Stragglers();
const job = new History("job");

let cluster = null;      // the last state, received at `received`
let received = now();
let problem = "";        // why the last poll failed
let selection = job;     // the history that the charts show
let paused = false;
let polls = 0;
const answers = {};      // path -> the last answer, for the file that Save writes

/** The JSON of a path. Throws with the reason that the server gave. */
async function get(path) {
    const token = sessionStorage.getItem(TOKEN);
    const reply = await fetch(path, {
        headers: token ? { Authorization: `Bearer ${token}` } : {},
        cache: "no-store", redirect: "manual", signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    if (reply.type === "opaqueredirect") { // another process is the coordinator now, and "/" leads there
        location.reload();
        throw new Error("the coordinator has moved");
    }
    if (reply.status === 401) {
        sessionStorage.removeItem(TOKEN);
        if (!$("token").open) $("token").showModal();
        throw new Error("the server asks for a token");
    }
    if (!reply.ok) throw new Error((await reply.json().catch(() => ({}))).error ?? `the server answered ${reply.status}`);
    return answers[path] = await reply.json();
}

/** What changes slowly is asked for in turn, one a second. */
const TURNS = [
    async () => {
        const reply = await get("api/slow");
        put($("slow-threshold"), `over ${reply.threshold_us / 1000} ms, of the last ${reply.requests.length}, newest first`);
        slow.show(reply.groups);
    },
    async () => keys.show((await get("api/hot")).tables.flatMap((t) => t.keys.map((k) => ({ ...k, table: t.table })))),
    async () => {
        await get("api/events");
        showEvents();
    },
];

function showEvents() {
    events.show((answers["api/events"]?.events ?? []).filter((e) => $("events-debug").checked || e.level !== "debug"));
}

async function poll() {
    try {
        if (!paused && !document.hidden && !$("token").open) await refresh();
    } catch (error) {
        problem = error.name === "TimeoutError" ? `no answer in ${TIMEOUT_MS / 1000} s`
            : error instanceof TypeError ? "the server does not answer" : error.message;
    }
    showAge();
    setTimeout(poll, POLL_MS);
}

async function refresh() {
    cluster = await get("api/cluster");
    received = now();
    stragglers.update(cluster.workers, cluster.waits, received);
    if (!exists(selection.of)) selection = job;
    const wanted = [job.refresh(get), TURNS[polls++ % TURNS.length]()];
    if (selection !== job) wanted.push(selection.refresh(get));
    const failed = (await Promise.allSettled(wanted)).find((result) => result.status === "rejected");
    problem = failed ? failed.reason.message : "";
    show();
}

function exists(of) {
    return of === "job" || cluster.tables.some((t) => of === `table:${t.name}`) ||
        cluster.servers.some((s) => s.shards.some((shard) => of === `shard:${shard.shard}`));
}

async function select(of) {
    selection = of === "job" || of === selection.of ? job : new History(of);
    show();
    if (selection === job || !cluster) return;
    await selection.refresh(get).catch(() => {}); // the next poll says why
    show();
}

function show() {
    if (!cluster) return;
    training.show(cluster, job);
    for (const tile of tiles) tile.show(cluster.totals[tile.name], job);
    map.show(cluster, selection.of);
    const [kind, name] = selection.of.split(/:(.*)/s);
    put($("history-title"), kind === "job" ? "Job" : `${kind === "shard" ? "Shard" : "Table"} ${name}`);
    $("show-job").hidden = selection === job;
    charts.show(selection);
    tables.show(cluster.tables);
    workers.show(cluster.workers);
    showHeader();
}

/** Amber while something is not as it should be. Waiting workers are no trouble of the servers. */
function showHeader() {
    const slowest = cluster.workers.filter((w) => w.straggler).map((w) => w.name);
    const degraded = cluster.job === "running" && cluster.trouble.length > 0;
    const state = degraded ? "degraded" : cluster.job;
    mark($("job"), state, state);
    const trouble = cluster.job === "running" || cluster.job === "waiting" ? [...cluster.trouble] : [];
    if (slowest.length === 1) trouble.push(`${slowest[0]} holds up the others`);
    if (slowest.length > 1) trouble.push(`${slowest[0]} and ${slowest.length - 1} more hold up the others`);
    put($("trouble"), trouble.slice(0, 2).join(", ") + (trouble.length > 2 ? ` and ${trouble.length - 2} more` : ""));
    $("trouble").title = trouble.join("\n");
    const name = cluster.title ?? "Starling";
    put($("title"), name);
    const running = cluster.workers.filter((w) => w.state === "running" || w.state === "disconnected").length;
    put($("facts"), [cluster.mode, plural(cluster.servers.length, "server"), plural(running, "worker"),
        cluster.uptime_s === null ? null : `up ${span(cluster.uptime_s)}`].filter(Boolean).join(" · "));
    put($("coordinator"), `coordinator ${cluster.coordinator}`);
    const { enabled, last, number, failures } = cluster.checkpoint;
    const age = last === null ? "no checkpoint yet" : `checkpoint ${number}, ${span(cluster.time - last)} ago`;
    put($("checkpoint"), !enabled ? "no checkpoints" : age + (failures ? `, ${failures} failed` : ""));
    $("save").hidden = false;
    document.title = `${state === "running" ? "" : `${state}: `}${cluster.title ?? location.host} – Starling`;
}

const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

/** Whether the job has come to its end, so that its servers need not answer any more. */
const ended = () => ["ending", "over"].includes(cluster?.job) ||
    (cluster?.workers.length > 0 && cluster.workers.every((w) => w.state === "left"));

/** Says how old the state is, and why, if it is old. */
function showAge() {
    const age = (cluster?.age_s ?? 0) + now() - received;
    const late = problem !== "" || age > LATE_S;
    put($("age"), paused ? "paused" : cluster ? `${span(age)} old` : "");
    $("banner").hidden = paused || !late;
    const over = late && ended();
    document.body.classList.toggle("late", late && !paused && cluster !== null && !over);
    $("banner").classList.toggle("over", over);
    if (over) {
        put($("banner"), `○ The job has ended: this is its state of ${span(age)} ago. Save keeps it as a file for starling-top --history.`);
        return;
    }
    const why = problem || "the coordinator has no newer reports";
    put($("banner"), cluster ? `▲ ${why}. This is the state of ${span(age)} ago; the page tries again every second.`
        : `▲ ${why}. The page tries again every second.`);
}

$("show-job").addEventListener("click", () => select("job"));
$("help-button").addEventListener("click", () => $("help").showModal());
for (const [input, table] of [["workers-filter", workers], ["events-filter", events]]) {
    $(input).addEventListener("input", (event) => {
        table.filter = event.target.value.trim().toLowerCase();
        table.render();
    });
}
$("events-debug").addEventListener("change", showEvents);
$("save").addEventListener("click", () => {
    const { "api/slow": slowRequests, "api/hot": hot, "api/events": lastEvents } = answers;
    const state = { cluster, slow: slowRequests, hot, events: lastEvents?.events, history: { times: job.times, series: job.series } };
    const link = add(document.body, "a");
    link.href = URL.createObjectURL(new Blob([JSON.stringify(state)], { type: "application/json" }));
    link.download = `starling-${(cluster.title ?? "job").replace(/[^\w.-]+/g, "-")}.json`;
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
});
for (const button of document.querySelectorAll(".range")) {
    button.addEventListener("click", () => {
        for (const other of document.querySelectorAll(".range")) other.ariaPressed = String(other === button);
        charts.seconds = Number(button.dataset.minutes) * 60;
        charts.show(selection);
    });
}
$("token").addEventListener("close", () => {
    if ($("token-text").value) sessionStorage.setItem(TOKEN, $("token-text").value.trim());
    $("token-text").value = "";
});

const SHORTCUTS = {
    "?": () => $("help").showModal(),
    j: () => select("job"),
    Escape: () => select("job"),
    m: () => map.focus(),
    w: () => $("workers-filter").focus(),
    e: () => $("events-filter").focus(),
    p: () => { paused = !paused; showAge(); },
};
document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof HTMLInputElement;
    if (typing && event.key === "Escape") event.target.blur();
    if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const shortcut = SHORTCUTS[event.key];
    if (shortcut) {
        event.preventDefault();
        shortcut();
    }
});
setInterval(showAge, POLL_MS);
poll();
