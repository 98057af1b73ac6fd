/* A job of ps_lite_test.py, written as programs for dmlc's ps-lite are: the argument says what the
 * job does, DMLC_ROLE says which part of it this process is. Prints "as expected", or fails a
 * check. */
#include <ps/ps.h>

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <iostream>

using namespace ps;

namespace
{

const int kEverybody = kScheduler + kServerGroup + kWorkerGroup;

/* Keys over the whole range, in each server's part of it. */
std::vector<Key> SpreadKeys(size_t count, Key offset = 0)
{
    std::vector<Key> keys;
    for (size_t i = 0; i < count; i++) {
        keys.push_back(kMaxKey / count * i + offset);
    }
    return keys;
}

/* ---- Arrays and macros, without a job */

void Arrays()
{
    int deleted = 0;
    {
        SArray<int> array;
        array.reset(new int[4]{1, 2, 3, 4}, 4, [&](int *data) {
            deleted++;
            delete[] data;
        });
        SArray<int> part = array.segment(1, 3);
        array.clear();
        CHECK_EQ(deleted, 0) << ": a segment keeps the memory";
        CHECK(part.size() == 2 && part[0] == 2 && part.back() == 3);
        SArray<char> bytes(part);
        CHECK_EQ(bytes.size(), 2 * sizeof(int));
        CHECK_EQ(static_cast<void *>(bytes.data()), static_cast<void *>(part.data()));
        part.resize(1);
        part.push_back(7);
        part.append(part);
        CHECK(part.size() == 4 && part[1] == 7 && part[3] == 7);
    }
    CHECK_EQ(deleted, 1);
    auto vector = std::make_shared<std::vector<float>>(3, 1.5F);
    SArray<float> shared(vector);
    CHECK_EQ(shared.data(), vector->data()) << ": no copy";
    SArray<float> copied(*vector);
    CHECK(copied.data() != vector->data() && copied[2] == 1.5F);
    SArray<float> grown(2, 5);
    grown.resize(4, 6);
    CHECK(grown[1] == 5 && grown[3] == 6);
    SArray<Key> keys = {1, 3, 5, 7, 9};
    const Range found = FindRange(keys, Key(2), Key(7));
    CHECK(found.begin() == 1 && found.end() == 3 && found.size() == 2);
    SArray<char> odd(3);
    bool thrown = false;
    try {
        SArray<int> cast(odd);
    } catch (const dmlc::Error &error) {
        thrown = std::string(error.what()).find("3 bytes") != std::string::npos;
    }
    CHECK(thrown);
    if (thrown)
        CHECK_NE(deleted, 0) << "a check belongs to no else of another condition";
    else
        CHECK(false);
    const int one = 1;
    CHECK_EQ(*CHECK_NOTNULL(&one), 1);
    CHECK_EQ(Environment::Init({{"PS_TEST_NAME", "set"}})->find("PS_TEST_NAME"),
             std::string("set"));
    CHECK(Environment::Get()->find("PATH") != nullptr);
    std::cout << SArray<int>({1, 2}) << std::endl;
}

/* ---- Sums by the default handler */

void Sums()
{
    const size_t kCount = 1000;
    const int kPushes = 20;
    if (IsServer()) {
        auto *server = new KVServer<float>(0);
        server->set_request_handle(KVServerDefaultHandle<float>());
        RegisterExitCallback([server] { delete server; });
    }
    if (!IsWorker()) {
        return;
    }
    KVWorker<float> kv(0, 0);
    const std::vector<Key> keys = SpreadKeys(kCount);
    std::vector<float> values;
    for (size_t i = 0; i < kCount; i++) {
        values.push_back(static_cast<float>(i % 7) + static_cast<float>(MyRank()));
    }
    std::atomic<int> called{0};
    std::vector<int> timestamps;
    for (int i = 0; i < kPushes; i++) {
        timestamps.push_back(i % 2 == 0 ? kv.Push(keys, values, {}, 0, [&] { called++; })
                                        : kv.ZPush(
                                              SArray<Key>(keys), SArray<float>(values), {}, 0,
                                              [&] { called++; }, i));
    }
    for (int timestamp : timestamps) {
        kv.Wait(timestamp);
        kv.Wait(timestamp);
    }
    CHECK_EQ(called.load(), kPushes) << ": each callback once, before its wait ends";
    Postoffice::Get()->Barrier(0, kWorkerGroup);

    const auto sum_of = [&](size_t i) {
        const int workers = NumWorkers();
        return static_cast<float>(kPushes) *
               (static_cast<float>(i % 7) * static_cast<float>(workers) +
                static_cast<float>(workers * (workers - 1) / 2));
    };
    std::vector<float> pulled;
    kv.Wait(kv.Pull(keys, &pulled));
    SArray<float> in_place(kCount);
    float *const memory = in_place.data();
    kv.Wait(kv.ZPull(SArray<Key>(keys), &in_place, nullptr, 0, [&] { called++; }));
    CHECK(called == kPushes + 1 && in_place.data() == memory);
    for (size_t i = 0; i < kCount; i++) {
        CHECK(pulled[i] == sum_of(i) && in_place[i] == sum_of(i)) << "key " << keys[i];
    }
    std::vector<float> never;
    kv.Wait(kv.Pull({5, kMaxKey - 5}, &never));
    CHECK(never == std::vector<float>({0, 0}));

    /* Keys of this worker alone, so that the sums are known. */
    const std::vector<Key> own = SpreadKeys(100, static_cast<Key>(MyRank()) + 1);
    const std::vector<float> ones(own.size(), 1);
    std::vector<float> outs;
    for (int i = 1; i <= 3; i++) {
        kv.Wait(kv.PushPull(own, ones, &outs));
        CHECK(outs == std::vector<float>(own.size(), static_cast<float>(i)));
    }
    kv.Wait(kv.Push({}, {}, {}, 0, [&] { called++; }));
    CHECK_EQ(called.load(), kPushes + 2);
}

/* ---- Arrays of any length and type, with lengths that only the server knows */

template <typename Val> class Store
{
  public:
    void operator()(const KVMeta &meta, const KVPairs<Val> &data, KVServer<Val> *server)
    {
        KVPairs<Val> answer;
        CHECK_EQ(meta.cmd, 77);
        CHECK_EQ(meta.sender % 2, 1);
        size_t at = 0;
        for (size_t i = 0; i < data.keys.size(); i++) {
            std::vector<Val> &kept = arrays_[data.keys[i]];
            if (meta.push) {
                const auto len = static_cast<size_t>(data.lens[i]);
                kept.assign(data.vals.begin() + at, data.vals.begin() + at + len);
                at += len;
            }
            if (meta.pull) {
                pulls_ += i == 0;
                answer.keys.push_back(data.keys[i]);
                answer.lens.push_back(static_cast<int>(kept.size()));
                answer.vals.append(SArray<Val>(kept));
            }
        }
        CHECK_EQ(at, data.vals.size());
        if (meta.pull && data.keys[0] == kMaxKey - 1) { /* how many pulls there were before */
            answer.vals = SArray<Val>{static_cast<Val>(pulls_ - 1)};
            answer.lens = SArray<int>{1};
        }
        server->Response(meta, answer);
    }

  private:
    int pulls_ = 0;
    std::map<Key, std::vector<Val>> arrays_;
};

template <typename Val> void LengthsOf(int app_id)
{
    if (IsServer()) {
        auto *server = new KVServer<Val>(app_id);
        server->set_request_handle(Store<Val>());
    }
    if (!IsWorker()) {
        return;
    }
    KVWorker<Val> kv(app_id, 0);
    const std::vector<Key> keys = SpreadKeys(50, static_cast<Key>(MyRank()));
    std::vector<Val> values;
    std::vector<int> lens;
    for (int i = 0; i < 50; i++) {
        lens.push_back(1 + i * 3);
        for (int k = 0; k < lens.back(); k++) {
            values.push_back(static_cast<Val>(i * 100 + k));
        }
    }
    kv.Wait(kv.Push(keys, values, lens, 77));
    std::vector<Val> pulled;
    std::vector<int> pulled_lens;
    kv.Wait(kv.Pull(keys, &pulled, &pulled_lens, 77));
    CHECK(pulled == values && pulled_lens == lens);
    std::fill(pulled.begin(), pulled.end(), Val());
    kv.Wait(kv.Pull(keys, &pulled, &pulled_lens, 77)); /* with lengths that are known now */
    CHECK(pulled == values && pulled_lens == lens);
    SArray<Val> array(values.size());
    kv.Wait(kv.ZPull(SArray<Key>(keys), &array, nullptr, 77));
    CHECK(std::equal(values.begin(), values.end(), array.begin()));
    std::vector<Val> outs;
    kv.Wait(kv.PushPull(keys, values, &outs, &pulled_lens, 77));
    CHECK(outs == values);

    bool thrown = false;
    std::vector<Val> too_short(3);
    try {
        kv.Wait(kv.Pull(keys, &too_short, nullptr, 77));
    } catch (const dmlc::Error &error) {
        thrown = std::string(error.what()).find("the buffer is for 3") != std::string::npos;
    }
    CHECK(thrown);
    Postoffice::Get()->Barrier(0, kWorkerGroup);
    if (MyRank() == 0) {
        std::vector<Val> pulls;
        kv.Wait(kv.Pull({kMaxKey - 1}, &pulls, nullptr, 77));
        CHECK_EQ(pulls[0], static_cast<Val>(5 * NumWorkers())) << ": the handler gets each once";
    }
    Postoffice::Get()->Barrier(0, kWorkerGroup);
}

void Lengths()
{
    LengthsOf<float>(1);
    LengthsOf<double>(2);
    LengthsOf<char>(3);
    LengthsOf<int64_t>(4);
}

/* ---- Engine threads that answer a pull when the last push of its round has arrived */

class Engine
{
  public:
    explicit Engine(KVServer<char> *server) : server_(server)
    {
        for (int i = 0; i < 2; i++) {
            threads_.emplace_back(&Engine::Run, this);
        }
    }
    ~Engine()
    {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            stopping_ = true;
        }
        cond_.notify_all();
        for (std::thread &thread : threads_) {
            thread.join();
        }
    }
    void Take(const KVMeta &meta, const KVPairs<char> &data)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        queue_.push_back(Work{meta, data});
        cond_.notify_one();
    }

  private:
    struct Work {
        KVMeta meta;
        KVPairs<char> data; /* refers to the request's memory, after the response too */
    };
    struct Round {
        SArray<float> sum;
        KVPairs<char> result;
        std::map<int, int> pushed; /* rounds, by sender */
        int pushes = 0, complete = 0;
        std::vector<KVMeta> waiting;
    };

    void Run()
    {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            cond_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
            if (queue_.empty()) {
                return;
            }
            const Work work = queue_.front();
            queue_.pop_front();
            Do(work);
        }
    }
    void Do(const Work &work)
    {
        Round &round = rounds_[work.data.keys[0]];
        if (work.meta.push) {
            server_->Response(work.meta);
            const SArray<float> values(work.data.vals);
            round.sum.resize(values.size());
            for (size_t i = 0; i < values.size(); i++) {
                round.sum[i] += values[i];
            }
            round.pushed[work.meta.sender]++;
            if (++round.pushes % NumWorkers() == 0) {
                Complete(&round, work.data);
            }
        } else if (round.pushed[work.meta.sender] <= round.complete) {
            server_->Response(work.meta, round.result);
        } else {
            round.waiting.push_back(work.meta);
        }
    }
    void Complete(Round *round, const KVPairs<char> &data)
    {
        round->complete++;
        round->result.keys.CopyFrom(data.keys);
        round->result.lens.CopyFrom(data.lens);
        round->result.vals = SArray<char>(round->sum);
        round->sum = SArray<float>(round->sum.size());
        for (const KVMeta &meta : round->waiting) {
            server_->Response(meta, round->result);
        }
        round->waiting.clear();
    }

    KVServer<char> *const server_;
    std::mutex mutex_;
    std::condition_variable cond_;
    bool stopping_ = false;
    std::deque<Work> queue_;
    std::map<Key, Round> rounds_;
    std::vector<std::thread> threads_;
};

void Rounds(int rounds)
{
    if (IsServer()) {
        auto *server = new KVServer<char>(0);
        auto *engine = new Engine(server);
        server->set_request_handle([engine](const KVMeta &meta, const KVPairs<char> &data,
                                            KVServer<char> *) { engine->Take(meta, data); });
        RegisterExitCallback([server, engine] {
            delete engine;
            delete server;
        });
    }
    if (!IsWorker()) {
        return;
    }
    const int kLen = 64;
    KVWorker<char> kv(0, 0);
    const auto &ranges = Postoffice::Get()->GetServerKeyRanges();
    CHECK_EQ(static_cast<int>(ranges.size()), NumServers());
    std::vector<SArray<Key>> keys;
    std::vector<SArray<float>> values;
    for (int i = 0; i < 6; i++) {
        keys.push_back(SArray<Key>{ranges[static_cast<size_t>(i) % ranges.size()].begin() +
                                   static_cast<Key>(i)});
        values.emplace_back(kLen);
    }
    SArray<int> lens{static_cast<int>(kLen * sizeof(float))};
    std::vector<SArray<float>> results(keys.size());
    for (int round = 0; round < rounds; round++) {
        std::vector<int> timestamps;
        for (size_t k = 0; k < keys.size(); k++) {
            for (int i = 0; i < kLen; i++) {
                values[k][static_cast<size_t>(i)] =
                    static_cast<float>(round % 100 + i + MyRank() * static_cast<int>(k));
            }
            SArray<char> pushed(values[k]);
            kv.Wait(kv.ZPush(keys[k], pushed, lens));
            results[k] = SArray<float>(kLen);
            SArray<char> pulled(results[k]);
            timestamps.push_back(kv.ZPull(keys[k], &pulled, &lens));
        }
        for (int timestamp : timestamps) {
            kv.Wait(timestamp);
        }
        const int workers = NumWorkers();
        for (size_t k = 0; k < keys.size(); k++) {
            for (int i = 0; i < kLen; i++) {
                const int sum =
                    workers * (round % 100 + i) + workers * (workers - 1) / 2 * static_cast<int>(k);
                CHECK_EQ(results[k][static_cast<size_t>(i)], static_cast<float>(sum))
                    << "round " << round << ", array " << k;
            }
        }
    }
}

/* ---- Messages, counted at each node */

void Messages(SimpleApp *app, const std::atomic<int> *received, const std::atomic<int> *answered)
{
    const int kEach = 10;
    std::vector<int> targets;
    for (int group = 1; group <= kEverybody; group++) {
        targets.push_back(group);
    }
    for (int id : Postoffice::Get()->GetNodeIDs(kServerGroup + kWorkerGroup)) {
        targets.push_back(id);
    }
    int expected = 0;
    std::vector<int> timestamps;
    for (int i = 0; i < kEach; i++) {
        for (int target : targets) {
            timestamps.push_back(app->Request(target, "body " + std::to_string(target), target));
            expected += static_cast<int>(Postoffice::Get()->GetNodeIDs(target).size());
        }
    }
    for (int timestamp : timestamps) {
        app->Wait(timestamp);
    }
    CHECK_EQ(answered->load(), expected);
    Postoffice::Get()->Barrier(0, kEverybody);
    const int nodes = 1 + NumServers() + NumWorkers();
    CHECK_EQ(received->load(), nodes * kEach * (4 + (IsScheduler() ? 0 : 1)));
}

void MessagesJob()
{
    std::atomic<int> received{0}, answered{0};
    std::vector<std::thread> later;
    {
        SimpleApp app(0, 0);
        app.set_request_handle([&](const SimpleData &data, SimpleApp *receiver) {
            CHECK_EQ(data.body, "body " + std::to_string(data.head));
            received++;
            if (received % 8 == 0) { /* answered by another thread */
                later.emplace_back([=] { receiver->Response(data, data.body + '!'); });
            } else {
                receiver->Response(data, data.body + '!');
            }
        });
        app.set_response_handle([&](const SimpleData &data, SimpleApp *) {
            CHECK_EQ(data.body, "body " + std::to_string(data.head) + '!');
            answered++;
        });
        Messages(&app, &received, &answered);
        Postoffice::Get()->Barrier(0, kEverybody);
        for (std::thread &thread : later) {
            thread.join();
        }
    }
}

/* ---- Two customers of a worker, each with a thread */

void Customer1Of2(int customer_id)
{
    Start(customer_id);
    KVWorker<float> kv(0, customer_id);
    const std::vector<Key> keys = SpreadKeys(500, static_cast<Key>(customer_id));
    std::vector<float> ones(keys.size(), 1), pulled;
    for (int i = 1; i <= 50; i++) {
        kv.Wait(kv.Push(keys, ones));
        kv.Wait(kv.Pull(keys, &pulled));
        CHECK(pulled == std::vector<float>(keys.size(), static_cast<float>(i)));
    }
    Postoffice::Get()->Barrier(customer_id, kWorkerGroup);
    std::vector<float> others;
    kv.Wait(kv.Pull(SpreadKeys(500, static_cast<Key>(1 - customer_id)), &others));
    CHECK(others == pulled) << ": both push to the same server";
    Finalize(customer_id);
}

/* ---- Barriers: nobody goes on before everybody has come */

void Barriers(const std::string &folder)
{
    const std::string own = std::to_string(IsScheduler() ? kScheduler
                                           : IsServer()  ? Postoffice::ServerRankToID(MyRank())
                                                         : Postoffice::WorkerRankToID(MyRank()));
    const int role = IsScheduler() ? kScheduler : IsServer() ? kServerGroup : kWorkerGroup;
    for (int round = 0; round < 5; round++) {
        for (int group = 1; group <= kEverybody; group++) {
            if (!(group & role)) {
                continue;
            }
            const std::string name =
                folder + '/' + std::to_string(round) + '.' + std::to_string(group) + '.';
            std::fclose(CHECK_NOTNULL(std::fopen((name + own).c_str(), "w")));
            Postoffice::Get()->Barrier(0, group);
            for (int id : Postoffice::Get()->GetNodeIDs(group)) {
                CHECK_EQ(access((name + std::to_string(id)).c_str(), F_OK), 0)
                    << ": node " << own << " before node " << id << ", group " << group;
            }
        }
    }
}

/* ---- Many keys in one call */

void Large(size_t count)
{
    if (IsServer()) {
        auto *values = new std::vector<float>(count);
        auto *server = new KVServer<float>(0);
        server->set_request_handle(
            [=](const KVMeta &meta, const KVPairs<float> &data, KVServer<float> *self) {
                KVPairs<float> answer;
                answer.keys = data.keys;
                answer.vals.resize(meta.pull ? data.keys.size() : 0);
                for (size_t i = 0; i < data.keys.size(); i++) {
                    float &value = (*values)[data.keys[i] / (kMaxKey / count)];
                    (meta.pull ? answer.vals[i] : value) = meta.pull ? value : value + data.vals[i];
                }
                self->Response(meta, answer);
            });
        RegisterExitCallback([=] {
            delete server;
            delete values;
        });
    }
    if (!IsWorker()) {
        return;
    }
    KVWorker<float> kv(0, 0);
    std::vector<Key> keys = SpreadKeys(count, static_cast<Key>(MyRank()));
    std::vector<float> values, pulled;
    for (size_t i = 0; i < count; i++) {
        values.push_back(static_cast<float>(i % 1000));
    }
    kv.Wait(kv.Push(keys, values));
    kv.Wait(kv.Pull(keys, &pulled));
    CHECK(pulled == values);
}

/* ---- Faults and misuse: what is printed is what the test reads */

void ExpectError(const std::string &what, const std::function<void()> &call)
{
    try {
        call();
    } catch (const dmlc::Error &error) {
        std::cout << what << ": " << error.what() << std::endl;
        return;
    }
    std::cout << what << ": no error" << std::endl;
}

/* Until something fails. */
void Pushes()
{
    if (IsServer()) {
        auto *server = new KVServer<float>(0);
        server->set_request_handle(KVServerDefaultHandle<float>());
    }
    if (IsWorker()) {
        KVWorker<float> kv(0, 0);
        const std::vector<Key> keys = SpreadKeys(16);
        const std::vector<float> values(keys.size(), 1);
        std::cout << "pushing" << std::endl;
        ExpectError("push", [&] {
            for (;;) {
                kv.Wait(kv.Push(keys, values));
            }
        });
        std::_Exit(3); /* the job is broken: nothing to finalize */
    }
}

void Misuse(const std::string &what)
{
    if (IsServer()) {
        auto *server = new KVServer<float>(0);
        server->set_request_handle(
            [what](const KVMeta &meta, const KVPairs<float> &data, KVServer<float> *self) {
                if (what == "never") {
                    return;
                }
                KVPairs<float> answer;
                answer.keys = data.keys;
                answer.vals.resize(what == "short" ? 1 : data.keys.size());
                self->Response(meta, answer);
                if (what == "twice") {
                    self->Response(meta, answer);
                }
            });
        RegisterExitCallback([server] { delete server; });
    }
    if (!IsWorker()) {
        return;
    }
    KVWorker<float> kv(0, 0);
    const std::vector<Key> keys = SpreadKeys(8);
    std::vector<float> values(keys.size(), 1);
    if (what == "slicer") {
        kv.set_slicer([](const KVPairs<float> &all, const std::vector<Range> &ranges,
                         KVWorker<float>::SlicedKVs *sliced) {
            sliced->resize(ranges.size());
            (*sliced)[1] = {true, all}; /* all keys to one server */
        });
        ExpectError("push", [&] { kv.Push(keys, values); });
        int called = 0;
        kv.set_slicer([&](const KVPairs<float> &all, const std::vector<Range> &ranges,
                          KVWorker<float>::SlicedKVs *sliced) {
            called++;
            sliced->resize(ranges.size());
            for (size_t i = 0; i < ranges.size(); i++) {
                const Range part =
                    FindRange(all.keys, Key(ranges[i].begin()), Key(ranges[i].end()));
                (*sliced)[i].first = part.size() > 0;
                (*sliced)[i].second.keys = all.keys.segment(part.begin(), part.end());
                (*sliced)[i].second.vals = all.vals.segment(part.begin(), part.end());
            }
        });
        kv.Wait(kv.Push(keys, values));
        CHECK_EQ(called, 1);
        return;
    }
    if (what == "group") {
        ExpectError("barrier", [] { Postoffice::Get()->Barrier(0, 9); });
        ExpectError("barrier", [] { Postoffice::Get()->Barrier(0, kServerGroup); });
        ExpectError("request", [&] { kv.Request(1, "", 8 + 2 * 50); });
        ExpectError("wait", [&] { kv.Wait(1000); });
        ExpectError("keys", [&] { kv.Push({2, 1}, {1, 1}); });
        return;
    }
    ExpectError("pull", [&] { kv.Wait(kv.Pull(keys, &values)); });
}

} // namespace

int main(int argc, char **argv)
{
    const std::string what = argc > 1 ? argv[1] : "";
    const std::string more = argc > 2 ? argv[2] : "";
    if (what == "arrays") {
        Arrays();
        std::cout << "as expected" << std::endl;
        return 0;
    }
    if (what == "customers" && Environment::Get()->find("DMLC_ROLE") == std::string("worker")) {
        std::thread second(Customer1Of2, 1);
        Customer1Of2(0);
        second.join();
        std::cout << "as expected" << std::endl;
        return 0;
    }
    if (what == "environment") { /* NAME=VALUE... */
        std::unordered_map<std::string, std::string> variables;
        for (int i = 2; i < argc; i++) {
            const std::string text = argv[i];
            variables[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
        }
        Environment::Init(variables);
    }
    try {
        bool ended = false;
        RegisterExitCallback([&] { ended = true; });
        what == "async" ? StartAsync(0, argv[0]) : Start(0, argv[0]);
        what == "lengths"    ? Lengths()
        : what == "rounds"   ? Rounds(std::atoi(more.c_str()))
        : what == "messages" ? MessagesJob()
        : what == "barriers" ? Barriers(more)
        : what == "large"    ? Large(static_cast<size_t>(std::atol(more.c_str())))
        : what == "pushes"   ? Pushes()
        : what == "misuse"   ? Misuse(more)
        : what == "nothing"  ? (void)0
                             : Sums();
        Finalize(0);
        CHECK(ended || IsServer());
    } catch (const dmlc::Error &error) {
        std::cout << "error: " << error.what() << std::endl;
        std::_Exit(3);
    }
    std::cout << "as expected" << std::endl;
    return 0;
}
