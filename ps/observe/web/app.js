// The live page of a job: polls the coordinator once a second and shows what it reports.

import { Charts, History, SERIES, Tile } from "./charts.js";
import { LATE_S, mark, put, span } from "./format.js";
import { ShardMap } from "./map.js";
import { EVENT_COLUMNS, KEY_COLUMNS, SLOW_COLUMNS, Stragglers, Table, TABLE_COLUMNS, WORKER_COLUMNS } from "./tables.js";

const POLL_MS = 1000;
const TIMEOUT_MS = 5000;
const TOKEN = "starling-token";

const $ = (id) => document.getElementById(id);
const now = () => performance.now() / 1000;

const tiles = SERIES.map((series) => new Tile($("tiles"), series));
const map = new ShardMap($("servers"), select);
const charts = new Charts($("charts"));
const tables = new Table($("tables"), TABLE_COLUMNS,
    { sort: 0, descending: false, pick: (t) => select(`table:${t.name}`), empty: "no table yet" });
const keys = new Table($("keys"), KEY_COLUMNS, { sort: 3, empty: "no samples yet" });
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
    return reply.json();
}

/** What changes slowly is asked for in turn, one a second. */
const TURNS = [
    async () => {
        const reply = await get("api/slow");
        put($("slow-threshold"), `over ${reply.threshold_us / 1000} ms, newest first`);
        slow.show(reply.requests);
    },
    async () => keys.show((await get("api/hot")).tables.flatMap((t) => t.keys.map((k) => ({ ...k, table: t.table })))),
    async () => events.show((await get("api/events")).events),
];

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

function showHeader() {
    const alone = cluster.servers.some((s) => ["disconnected", "expired"].includes(s.state) ||
        s.shards.some((shard) => !shard.backup && shard.in_sync !== null));
    mark($("job"), alone && cluster.job === "running" ? "warning" : cluster.job, cluster.job);
    const gone = [...cluster.servers, ...cluster.workers].filter((m) => ["disconnected", "expired"].includes(m.state));
    const trouble = [...cluster.missing.map((name) => `${name} is missing`), ...gone.map((m) => `${m.name} is ${m.state}`),
        ...cluster.workers.filter((w) => w.straggler).map((w) => `${w.name} holds up the others`)];
    put($("trouble"), trouble.slice(0, 3).join(", ") + (trouble.length > 3 ? ` and ${trouble.length - 3} more` : ""));
    put($("coordinator"), `coordinator ${cluster.coordinator}`);
    const { enabled, last, number, failures } = cluster.checkpoint;
    const age = last === null ? "no checkpoint yet" : `checkpoint ${number}, ${span(cluster.time - last)} ago`;
    put($("checkpoint"), !enabled ? "no checkpoints" : age + (failures ? `, ${failures} failed` : ""));
    document.title = `${cluster.job === "running" ? "" : `${cluster.job}: `}Starling`;
}

/** Says how old the state is, and why, if it is old. */
function showAge() {
    const age = (cluster?.age_s ?? 0) + now() - received;
    const late = problem !== "" || age > LATE_S;
    put($("age"), paused ? "paused" : cluster ? `${span(age)} old` : "");
    $("banner").hidden = paused || !late;
    document.body.classList.toggle("late", late && !paused && cluster !== null);
    const why = problem || "the coordinator has no newer reports";
    put($("banner"), cluster ? `▲ ${why}. This is the state of ${span(age)} ago; the page tries again every second.`
        : `▲ ${why}. The page tries again every second.`);
}

$("show-job").addEventListener("click", () => select("job"));
$("help-button").addEventListener("click", () => $("help").showModal());
$("workers-filter").addEventListener("input", (event) => {
    workers.filter = event.target.value.trim().toLowerCase();
    workers.render();
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
