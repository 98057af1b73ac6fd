/* What the header of ps-lite costs over the C interface below it: one worker pushes and pulls
 * arrays by both in turn, to the same server, whose handler keeps the last push of each key. A
 * program of ps-lite in the role of DMLC_ROLE; the worker prints the rates and their ratio. */
#include <ps/ps.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

using namespace ps;

namespace
{

const int kWindow = 10; /* keys in flight */
const int kTurns = 9;   /* of each kind; the median counts */

void Keep()
{
    auto *kept = new std::map<Key, KVPairs<char>>;
    auto *server = new KVServer<char>(0);
    server->set_request_handle(
        [kept](const KVMeta &meta, const KVPairs<char> &data, KVServer<char> *self) {
            KVPairs<char> &stored = (*kept)[data.keys[0]];
            if (meta.pull) {
                self->Response(meta, stored);
                return;
            }
            if (stored.vals.size() != data.vals.size()) {
                stored.keys.CopyFrom(data.keys);
                stored.vals.CopyFrom(data.vals);
            }
            self->Response(meta);
        });
    RegisterExitCallback([server, kept] {
        delete server;
        delete kept;
    });
}

struct Arrays {
    std::vector<SArray<Key>> keys;
    std::vector<SArray<char>> values;
    SArray<int> lens;
};

void ByHeader(KVWorker<char> *worker, Arrays *arrays, bool push)
{
    int timestamps[kWindow];
    for (size_t i = 0; i < kWindow; i++) {
        timestamps[i] = push ? worker->ZPush(arrays->keys[i], arrays->values[i], arrays->lens)
                             : worker->ZPull(arrays->keys[i], &arrays->values[i], &arrays->lens);
    }
    for (int timestamp : timestamps) {
        worker->Wait(timestamp);
    }
}

void ByInterface(sl_kv *kv, Arrays *arrays, bool push)
{
    uint64_t timestamps[kWindow];
    for (size_t i = 0; i < kWindow; i++) {
        sl_kv_call call = {};
        call.batch.keys = arrays->keys[i].data();
        call.batch.key_count = 1;
        call.batch.value_count = arrays->values[i].size();
        call.batch.pull = push ? nullptr : arrays->values[i].data();
        call.batch.push = push ? arrays->values[i].data() : nullptr;
        CHECK_EQ(sl_kv_begin(kv, &call, &timestamps[i]), 0) << sl_last_error();
    }
    for (uint64_t timestamp : timestamps) {
        CHECK_EQ(sl_kv_wait(kv, timestamp), 0) << sl_last_error();
    }
}

template <typename Turn> double RateOf(Turn turn, int repeat)
{
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < repeat; i++) {
        turn();
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    return repeat * kWindow / taken.count();
}

void Compare(KVWorker<char> *worker, sl_kv *kv, size_t bytes, int repeat)
{
    Arrays arrays;
    arrays.lens = SArray<int>{static_cast<int>(bytes)};
    for (int i = 0; i < kWindow; i++) {
        arrays.keys.push_back(SArray<Key>{static_cast<Key>(i) + bytes * 100});
        arrays.values.emplace_back(bytes, 'x');
    }
    for (bool push : {true, false}) {
        std::vector<double> header, interface, ratios;
        for (int turn = -1; turn < kTurns; turn++) { /* the first one warms up */
            const double by_header = RateOf([&] { ByHeader(worker, &arrays, push); }, repeat);
            const double by_interface = RateOf([&] { ByInterface(kv, &arrays, push); }, repeat);
            if (turn >= 0) {
                header.push_back(by_header);
                interface.push_back(by_interface);
                ratios.push_back(by_header / by_interface);
            }
        }
        for (auto *each : {&header, &interface, &ratios}) {
            std::nth_element(each->begin(), each->begin() + kTurns / 2, each->end());
        }
        std::printf("%s of %zu bytes: header %.0f/s, interface %.0f/s, ratio %.3f\n",
                    push ? "push" : "pull", bytes, header[kTurns / 2], interface[kTurns / 2],
                    ratios[kTurns / 2]);
        std::fflush(stdout);
    }
}

} // namespace

int main()
{
    Start(0);
    if (IsServer()) {
        Keep();
    }
    if (IsWorker()) {
        KVWorker<char> worker(0, 0);
        const auto member = Postoffice::GetWorker()->MemberOf(0);
        sl_kv *table = nullptr;
        member->OpenTable(starling::TableName(0, 1, 0), 1, &table);
        Compare(&worker, table, 4096, 500);
        Compare(&worker, table, 1 << 20, 10);
        member->CloseTable(&table);
    }
    Finalize(0);
    return 0;
}
