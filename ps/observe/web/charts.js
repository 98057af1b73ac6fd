// The history of the job, a shard or a table: kept for 15 minutes, drawn as sparklines and charts.

import uPlot from "./vendor/uPlot/uPlot.esm.js";
import { add, bytes, count, micros, put, significant, time } from "./format.js";

const POINTS_MAX = 900;
const SPARK_POINTS = 300;
const SPARK_LEAST = 10; // points across a tile
const RANGE_LEAST_S = 10; // of the charts of a job that has just begun
const CHART_HEIGHT = 132;
const POWERS_OF_TWO = Array.from({ length: 50 }, (_, i) => 2 ** i); // steps of an axis of bytes

export const SERIES = [
    { name: "requests_s", title: "requests/s", text: count },
    { name: "keys_s", title: "keys/s", text: count },
    { name: "bytes_s", title: "bytes/s", text: bytes },
    { name: "p99_us", title: "p99", text: micros },
    { name: "staleness", title: "staleness, steps", text: count },
    { name: "memory", title: "memory", text: bytes },
];
/** Of the training: the first charts of the job. */
export const TRAINING_SERIES = [
    { name: "loss", title: "loss", text: significant },
    { name: "samples_s", title: "samples/s", text: count },
];
const CHARTS = [...TRAINING_SERIES, ...SERIES];

/** The points of one /api/history: each refresh asks for those that it lacks. */
export class History {
    constructor(of) {
        this.of = of;
        this.clear();
    }

    clear() {
        this.times = [];
        this.series = Object.fromEntries(CHARTS.map((s) => [s.name, []]));
    }

    async refresh(get) {
        const last = this.times.at(-1) ?? 0;
        const reply = await get(`api/history?of=${encodeURIComponent(this.of)}&since=${last}`);
        if (reply.end < last) this.clear(); // another coordinator, with a history of its own
        const points = Math.max(0, ...Object.values(reply.series).map((values) => values.length));
        for (let i = 0; i < points; i++) {
            const at = reply.end - (points - 1 - i) * reply.step_s;
            if (at <= (this.times.at(-1) ?? 0)) continue;
            this.times.push(at);
            for (const { name } of CHARTS) this.series[name].push(reply.series[name]?.[i] ?? null);
        }
        const extra = this.times.length - POINTS_MAX;
        if (extra > 0) for (const values of [this.times, ...Object.values(this.series)]) values.splice(0, extra);
    }
}

/** A tile: the number of now above the line of the last five minutes. */
export class Tile {
    constructor(parent, { name, title, text }) {
        this.name = name;
        this.text = text;
        const root = add(parent, "div", "tile");
        root.dataset.series = name;
        add(root, "span", "tile-title", title);
        this.value = add(root, "strong", "tile-value", "–");
        const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
        svg.setAttribute("viewBox", `0 0 ${SPARK_POINTS} 30`);
        svg.setAttribute("preserveAspectRatio", "none");
        svg.setAttribute("aria-hidden", "true");
        this.area = svg.appendChild(document.createElementNS(svg.namespaceURI, "path"));
        this.line = svg.appendChild(document.createElementNS(svg.namespaceURI, "path"));
        this.area.setAttribute("class", "spark-area");
        this.line.setAttribute("class", "spark-line");
        root.appendChild(svg);
    }

    show(value, history) {
        put(this.value, this.text(value));
        const values = history.series[this.name].slice(-SPARK_POINTS);
        const top = Math.max(...values.map((v) => v ?? 0), 1e-9);
        const runs = [[]]; // of points [x, y] without a gap
        const step = SPARK_POINTS / (Math.max(values.length, SPARK_LEAST) - 1); // a young job fills its tiles
        values.forEach((v, i) => {
            if (v === null) runs.push([]);
            else runs.at(-1).push([(SPARK_POINTS - (values.length - 1 - i) * step).toFixed(1), (28 - 26 * v / top).toFixed(1)]);
        });
        const drawn = runs.filter((points) => points.length);
        this.line.setAttribute("d", drawn.map((points) => `M${points.join("L")}`).join(""));
        this.area.setAttribute("d", drawn.map((points) =>
            `M${points[0][0]},30L${points.join("L")}L${points.at(-1)[0]},30Z`).join(""));
    }
}

/** One chart for each series. They share the time axis and the cursor. */
export class Charts {
    constructor(root) {
        this.root = root;
        this.seconds = 300;
        this.history = null;
        this.charts = CHARTS.map((series) => {
            const figure = add(root, "figure", "chart");
            const caption = add(figure, "figcaption");
            add(caption, "span", "", series.title);
            return { series, figure, value: add(caption, "strong"), plot: null };
        });
        new ResizeObserver(() => this.resize()).observe(root);
        matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
    }

    /** Colours are those of the style sheet, which a change of the theme replaces. */
    redraw() {
        for (const chart of this.charts) {
            chart.plot?.destroy();
            chart.plot = null;
        }
        if (this.history) this.show(this.history);
    }

    make(chart) {
        const style = getComputedStyle(document.documentElement);
        const colour = (name) => style.getPropertyValue(name).trim();
        const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false },
            font: "11px system-ui, sans-serif" };
        return new uPlot({
            width: this.width(chart), height: CHART_HEIGHT, legend: { show: false },
            cursor: { sync: { key: "history" }, drag: { setScale: false }, y: false },
            scales: {
                x: { range: () => this.range() },
                y: { range: (_, low, high) => [Math.min(0, low * 1.1), high > 0 ? high * 1.1 : low < 0 ? 0 : 1] },
            },
            axes: [
                { ...axis, size: 24, space: 64, incrs: [5, 10, 15, 30, 60, 120, 300], values: (_, at) => this.labels(at) },
                { ...axis, size: 62, space: 30, ...(chart.series.text === bytes && { incrs: POWERS_OF_TWO }), values: (_, at) => at.map((v) => chart.series.text(v)) },
            ],
            series: [{}, { stroke: colour("--accent"), fill: colour("--accent-soft"), width: 1.5, points: { show: false } }],
            hooks: { setCursor: [() => this.showValue(chart)] },
        }, [[], []], chart.figure);
    }

    width(chart) {
        return Math.max(200, chart.figure.clientWidth);
    }

    /** The chosen time, but not from before the history begins. */
    range() {
        const times = this.history?.times ?? [];
        const end = times.at(-1) ?? Date.now() / 1000;
        return [Math.min(Math.max(end - this.seconds, times[0] ?? 0), end - RANGE_LEAST_S), end];
    }

    labels(times) {
        const [begin, end] = this.range();
        return times.map((t) => end - begin < 180 ? time(t) : time(t).slice(0, 5));
    }

    resize() {
        for (const chart of this.charts) {
            if (chart.plot && chart.plot.width !== this.width(chart)) {
                chart.plot.setSize({ width: this.width(chart), height: CHART_HEIGHT });
            }
        }
    }

    show(history) {
        this.history = history;
        for (const chart of this.charts) {
            const values = history.series[chart.series.name];
            // A table has no staleness, and a job that says nothing of its training no loss.
            chart.figure.hidden = values.every((v) => v === null) && (values.length > 0 || TRAINING_SERIES.includes(chart.series));
            if (chart.figure.hidden) continue;
            chart.plot ??= this.make(chart);
            chart.plot.setData([history.times, values]);
            this.showValue(chart);
        }
    }

    /** The value under the cursor with its time, else the last one. */
    showValue(chart) {
        const values = this.history?.series[chart.series.name] ?? [];
        const index = chart.plot?.cursor.idx ?? null;
        const at = index === null ? "" : ` at ${time(this.history.times[index])}`;
        put(chart.value, chart.series.text(index === null ? values.at(-1) : values[index]) + at);
    }
}
