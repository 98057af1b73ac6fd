// The figures of the training, as the workers say them.

import { Tile, TRAINING_SERIES } from "./charts.js";
import { add, bar, fill, put, significant, span, time } from "./format.js";

/** A tile without a line. */
class Figure {
    constructor(parent, name, title) {
        const root = add(parent, "div", "tile");
        root.dataset.figure = name;
        this.title = add(root, "span", "tile-title", title);
        this.value = add(root, "strong", "tile-value", "–");
        this.note = add(root, "span", "tile-note");
    }

    show(value, note = "") {
        put(this.value, value);
        put(this.note, note);
    }
}

export class Training {
    constructor(root) {
        this.root = root;
        this.epoch = new Figure(root, "epoch", "epochs done");
        this.bar = bar(this.epoch.note.parentElement, "tile-bar");
        this.lines = TRAINING_SERIES.map((series) => new Tile(root, series));
        this.eta = new Figure(root, "eta", "time left");
        this.metric = new Figure(root, "metric", "test metric");
        this.rate = new Figure(root, "learning_rate", "learning rate");
    }

    show(cluster, history) {
        const { training, time: now, totals } = cluster;
        this.root.hidden = training === null;
        if (training === null) return;
        const { epoch, epochs, eta_s, metric } = training;
        const done = Number(epoch.toFixed(epoch < 100 ? 1 : 0));
        this.epoch.show(epochs === null ? String(done) : `${done} of ${epochs}`);
        this.bar.parentElement.hidden = epochs === null;
        fill(this.bar, epochs === null ? 0 : epoch / epochs);
        for (const line of this.lines) line.show(totals[line.name] ?? training[line.name], history);
        this.eta.show(eta_s === null ? "–" : span(eta_s), eta_s === null || eta_s > 86400 ? "" : `until ${time(now + eta_s).slice(0, 5)}`);
        put(this.metric.title, metric?.name ?? "test metric");
        this.metric.show(significant(metric?.value));
        this.rate.show(significant(training.learning_rate));
    }
}
