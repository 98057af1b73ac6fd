/* The training figures of the job, from the reports of its workers. */
#include <jansson.h>
#include <math.h>

#include "ps/observe/cluster_state.h"

/* The time that the worker needs for the epochs that are left; NAN: not known. */
static double eta_of(const struct sl_cluster_member *member)
{
    const struct sl_training *training = &member->report.client.training;
    const double done = (double)training->epoch - (double)member->begin_epoch;
    const double left = (double)training->epochs - (double)training->epoch;
    const double spent_s =
        (double)(member->received_ns - member->begin_ns) / (double)SL_CLOCK_NS_PER_S;
    return done > 0 && left >= 0 && spent_s > 0 ? left * spent_s / done : (double)NAN;
}

static void add_worker(struct sl_cluster_training *sum, const struct sl_cluster_member *member)
{
    const struct sl_training *training = &member->report.client.training;
    struct sl_training *figures = &sum->figures;
    const double rate = sl_cluster_rate(training->samples, member->earlier.client.training.samples,
                                        sl_cluster_seconds(member));
    const bool is_first = !sum->is_known;
    figures->epoch =
        is_first || training->epoch < figures->epoch ? training->epoch : figures->epoch;
    figures->epochs = fmaxf(figures->epochs, training->epochs);
    figures->samples += training->samples;
    sum->samples_s = isnan(rate)             ? sum->samples_s
                     : isnan(sum->samples_s) ? rate
                                             : sum->samples_s + rate;
    sum->eta_s = fmax(sum->eta_s, eta_of(member));
    if (figures->learning_rate == 0) {
        figures->learning_rate = training->learning_rate;
    }
    if (figures->metric_name[0] == '\0' && training->metric_name[0] != '\0') {
        figures->metric = training->metric;
        memcpy(figures->metric_name, training->metric_name, sizeof figures->metric_name);
    }
    sum->is_known = true;
}

/* Of the workers that run, or of those that have left. */
static struct sl_cluster_training sum_workers(const struct sl_cluster *cluster,
                                              const struct sl_coordinator_view *view,
                                              bool are_running, uint64_t now_ns)
{
    struct sl_cluster_training sum = {.samples_s = NAN, .eta_s = NAN};
    double loss = 0;
    uint32_t losses = 0;
    for (uint32_t task = 0; task < view->worker_end; task++) {
        const struct sl_cluster_member *member = sl_cluster_fresh(cluster->workers[task], now_ns);
        if (member != NULL && member->report.client.has_training &&
            sl_cluster_is_running(view, task) == are_running) {
            add_worker(&sum, member);
            loss += (double)member->report.client.training.loss;
            losses += member->report.client.training.loss != 0;
        }
    }
    sum.figures.loss = losses == 0 ? 0 : (float)(loss / losses);
    return sum;
}

void sl_cluster_sum_training(struct sl_cluster *cluster, const struct sl_coordinator_view *view,
                             uint64_t now_ns)
{
    struct sl_cluster_training sum = sum_workers(cluster, view, true, now_ns);
    if (!sum.is_known) { /* the job has ended: the last figures stay */
        sum = sum_workers(cluster, view, false, now_ns);
        cluster->training = sum.is_known ? sum : cluster->training;
        cluster->training.samples_s = cluster->training.eta_s = NAN;
        return;
    }
    cluster->training = sum;
    cluster->totals.values[SL_HISTORY_SAMPLES] = (float)sum.samples_s;
    cluster->totals.values[SL_HISTORY_LOSS] = sum.figures.loss == 0 ? NAN : sum.figures.loss;
}

static json_t *number_or_null(double value)
{
    return value == 0 ? json_null() : sl_cluster_describe_number(value);
}

json_t *sl_cluster_describe_training(const struct sl_cluster *cluster)
{
    const struct sl_cluster_training *training = &cluster->training;
    const struct sl_training *figures = &training->figures;
    if (!training->is_known) {
        return json_null();
    }
    return json_pack(
        "{s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o}", "epoch",
        sl_cluster_describe_number((double)figures->epoch), "epochs",
        number_or_null((double)figures->epochs), "samples", (json_int_t)figures->samples,
        "samples_s", sl_cluster_describe_number(training->samples_s), "eta_s",
        sl_cluster_describe_number(training->eta_s), "loss", number_or_null((double)figures->loss),
        "learning_rate", number_or_null((double)figures->learning_rate), "metric",
        figures->metric_name[0] == '\0'
            ? json_null()
            : json_pack("{s:s, s:o}", "name", figures->metric_name, "value",
                        sl_cluster_describe_number((double)figures->metric)));
}
