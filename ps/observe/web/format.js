// Numbers and times as text. A value that nobody reported is a dash.

const NONE = "–";

function scaled(value, base, units) {
    if (value === null || value === undefined) return NONE;
    let unit = 0;
    while (Math.abs(value) >= base && unit < units.length - 1) {
        value /= base;
        unit++;
    }
    const digits = unit === 0 && Number.isInteger(value) || value >= 100 ? 0 : value >= 10 ? 1 : 2;
    return value.toFixed(digits) + units[unit];
}

export const count = (value) => scaled(value, 1000, ["", " k", " M", " G", " T"]);
export const bytes = (value) => scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB"]);
export const micros = (value) => scaled(value, 1000, [" µs", " ms", " s"]);
/** Two significant digits or so: 0.09 %, 4.2 %, 42 %. */
export const percent = (share) => share === null || share === undefined ? NONE
    : `${(share * 100).toFixed(share > 0 && share < 0.005 ? 2 : share < 0.1 ? 1 : 0)} %`;

/** Four significant digits: a loss, a metric, a learning rate. */
export const significant = (value) => value === null || value === undefined ? NONE
    : value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)));

/** A span of time, such as an age: "0.4 s", "3 min", "2 h". */
export function span(seconds) {
    if (seconds === null || seconds === undefined) return NONE;
    if (seconds < 10) return Math.max(seconds, 0).toFixed(1) + " s";
    if (seconds < 120) return seconds.toFixed(0) + " s";
    if (seconds < 7200) return (seconds / 60).toFixed(0) + " min";
    return (seconds / 3600).toFixed(0) + " h";
}

/** The time of day of a unix time, in the browser's zone. */
export const time = (unix) => new Date(unix * 1000).toLocaleTimeString([], { hour12: false });

/** Sets the text of an element, if it differs: an unchanged page is not laid out again. */
export function put(element, text) {
    if (element.textContent !== text) element.textContent = text;
}

/** A new bar in parent; fill() sets its length, a share of 1. */
export const bar = (parent, name = "") => add(add(parent, "span", `bar ${name}`), "span", "bar-fill");
export function fill(element, share) {
    element.style.width = `${Math.min(1, share ?? 0) * 100}%`;
}

/** A new element with a class and a text, as the last child of parent. */
export function add(parent, tag, name = "", text = "") {
    const element = document.createElement(tag);
    if (name) element.className = name;
    element.textContent = text;
    return parent.appendChild(element);
}

export const LATE_S = 3; // an older state is shown with its age

/** The state of a server or worker, with the age of its report if that is old. */
export const stateText = ({ age_s }, state) => state + (age_s > LATE_S ? `, ${span(age_s)} ago` : "");

// The mark of a state: a shape beside its text, and a colour that says no more than they do.
const MARKS = {
    serving: ["●", "good"], running: ["●", "good"], in_sync: ["●", "good"],
    starting: ["◐", "wait"], restoring: ["◐", "wait"], waiting: ["◐", "wait"], ending: ["◐", "wait"], draining: ["◐", "wait"],
    disconnected: ["✕", "bad"], expired: ["✕", "bad"], straggler: ["▲", "bad"], hot: ["▲", "wait"],
    degraded: ["▲", "wait"], left: ["○", "idle"], over: ["○", "idle"],
    error: ["✕", "bad"], warning: ["▲", "wait"], warn: ["▲", "wait"],
};

export function mark(element, state, text = state) {
    const [shape, tone] = MARKS[state] ?? ["", "idle"];
    put(element, `${shape} ${text}`.trim());
    if (element.dataset.tone !== tone) element.dataset.tone = tone;
}
