// The map: a column per server, a cell per shard of that server, with the place of its backup. Elements
// are kept and updated; a server or shard that is gone takes its elements along.

import { add, bar, bytes, count, fill, mark, micros, percent, put, stateText } from "./format.js";

const DENSE_CELLS = 64; // with more cells than that, a cell shows number, load and trouble only
const HOT_LEAST = 0.5;  // a hot shard's reactor is that busy, and twice as busy as the median

/** Makes an entry of map for each key, in order, and removes the elements of the others. */
function keep(map, parent, keys, make) {
    for (const [key, entry] of map) {
        if (!keys.includes(key)) {
            entry.root.remove();
            map.delete(key);
        }
    }
    keys.forEach((key, index) => {
        if (!map.has(key)) map.set(key, make(key));
        const root = map.get(key).root;
        if (parent.children[index] !== root) parent.insertBefore(root, parent.children[index] ?? null);
    });
}

export class ShardMap {
    constructor(root, pick) {
        this.root = root;
        this.pick = pick;
        this.servers = new Map();
        root.addEventListener("keydown", (event) => this.move(event));
    }

    show(cluster, selected) {
        keep(this.servers, this.root, cluster.servers.map((s) => s.name), (name) => this.makeServer(name));
        const shards = cluster.servers.flatMap((s) => s.shards);
        this.root.classList.toggle("dense", shards.length > DENSE_CELLS);
        const chosen = shards.find((s) => selected === `shard:${s.shard}`);
        const busy = shards.map((s) => s.busy ?? 0).sort((a, b) => a - b);
        this.hot = Math.max(HOT_LEAST, 2 * (busy[Math.floor(busy.length / 2)] ?? 0));
        for (const server of cluster.servers) this.showServer(this.servers.get(server.name), server, selected, chosen);
        const cells = this.cells().flat();
        if (cells.length && !cells.some((cell) => cell.tabIndex === 0)) cells[0].tabIndex = 0;
    }

    makeServer(name) {
        const root = document.createElement("div");
        root.className = "server";
        root.setAttribute("role", "group");
        const head = add(root, "div", "server-head");
        const entry = { root, cells: new Map(), title: add(head, "strong", "", name), state: add(head, "span", "mark") };
        entry.memory = add(root, "p", "note");
        entry.holds = add(root, "p", "holds");
        entry.list = add(root, "div", "cells");
        return entry;
    }

    showServer(entry, server, selected, chosen) {
        mark(entry.state, server.state, stateText(server, server.state));
        entry.root.dataset.state = server.state;
        entry.root.setAttribute("aria-label", `server ${server.name}, ${server.state}`);
        put(entry.memory, bytes(server.memory) + (server.memory_limit ? ` of ${bytes(server.memory_limit)}` : "") +
            (server.ordinary_pages > server.memory / 10 ? `, ${bytes(server.ordinary_pages)} on ordinary pages` : "") +
            `, ${server.primaries} shard${server.primaries === 1 ? "" : "s"}` + (server.backups ? `, ${server.backups} backup${server.backups === 1 ? "" : "s"}` : ""));
        const holds = chosen !== undefined && chosen.backup === server.name;
        entry.holds.hidden = !holds;
        entry.root.classList.toggle("is-backup", holds);
        put(entry.holds, holds ? `holds the backup of shard ${chosen.shard}` : "");
        keep(entry.cells, entry.list, server.shards.map((s) => s.shard), (shard) => this.makeCell(shard));
        for (const shard of server.shards) this.showCell(entry.cells.get(shard.shard), server, shard, selected);
    }

    makeCell(shard) {
        const root = document.createElement("button");
        root.type = "button";
        root.className = "cell";
        root.tabIndex = -1;
        root.dataset.shard = shard;
        root.addEventListener("click", () => this.pick(`shard:${shard}`));
        root.addEventListener("focus", () => {
            for (const cell of this.cells().flat()) cell.tabIndex = cell === root ? 0 : -1;
        });
        const top = add(root, "span", "cell-line");
        const entry = { root };
        add(add(top, "strong"), "span", "word", "shard ").after(String(shard));
        entry.busy = add(top, "span", "busy");
        entry.bar = bar(root);
        const load = add(root, "span", "cell-line load");
        entry.requests = add(load, "span");
        entry.latency = add(load, "span");
        entry.backup = add(root, "span", "backup mark");
        return entry;
    }

    showCell(entry, server, shard, selected) {
        entry.root.setAttribute("aria-pressed", String(selected === `shard:${shard.shard}`));
        entry.root.classList.toggle("moved", shard.moves_to !== null);
        if (shard.busy >= this.hot) mark(entry.busy, "hot", `hot ${percent(shard.busy)}`);
        else mark(entry.busy, "", percent(shard.busy));
        fill(entry.bar, shard.busy);
        put(entry.requests, `${count(shard.requests_s)} req/s`);
        put(entry.latency, micros(shard.p99_us));
        if (!shard.serving) mark(entry.backup, "disconnected", "not served");
        else if (shard.moves_to) mark(entry.backup, "waiting", `moves to ${shard.moves_to}, ${count(shard.lag_entries)} behind`);
        else if (!shard.backup) mark(entry.backup, shard.in_sync === null ? "left" : "warning", "no backup");
        else if (shard.in_sync) mark(entry.backup, "in_sync", `backup ${shard.backup}`);
        else mark(entry.backup, "waiting", `backup ${shard.backup}, ${count(shard.lag_entries)} behind`);
    }

    /** The cells of each column. */
    cells() {
        return [...this.root.children].map((server) => [...server.querySelectorAll(".cell")]);
    }

    focus() {
        this.root.querySelector('.cell[tabindex="0"]')?.focus();
    }

    move(event) {
        const columns = this.cells().filter((cells) => cells.length);
        const x = columns.findIndex((cells) => cells.includes(event.target));
        if (x < 0) return;
        const y = columns[x].indexOf(event.target);
        const to = { ArrowLeft: [x - 1, y], ArrowRight: [x + 1, y], ArrowUp: [x, y - 1], ArrowDown: [x, y + 1],
            Home: [0, 0], End: [columns.length - 1, Infinity] }[event.key];
        if (!to) return;
        event.preventDefault();
        const column = columns[Math.min(Math.max(to[0], 0), columns.length - 1)];
        column[Math.min(Math.max(to[1], 0), column.length - 1)].focus();
    }
}
