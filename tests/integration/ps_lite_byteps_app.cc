/* A job of ps_lite_test.py, written as programs for BytePS's fork of ps-lite are. DMLC_ROLE may be
 * "joint": a server and a worker in one process. DMLC_GROUP_SIZE: instances in each process, which
 * have handlers of their own. Prints "as expected", or fails a check. */
#include <ps/ps.h>

#include <atomic>
#include <iostream>
#include <mutex>

using namespace ps;

namespace
{

const int kKeys = 4; /* of each server */
const int kBytes = 20000;
const int kRounds = 10;

/* An instance of a server: it keeps the last push of each key and worker, and answers with it. */
class Instance
{
  public:
    explicit Instance(int index) : index_(index), server_(new KVServer<char>(0, false, index))
    {
        CHECK_EQ(server_->instance_idx_, index);
        server_->set_request_handle([this](const KVMeta &meta, const KVPairs<char> &data,
                                           KVServer<char> *) { Handle(meta, data); });
    }
    /* Where the pushes of each worker arrive. */
    void Register(const std::vector<Key> &keys)
    {
        std::lock_guard<std::mutex> lock(mutex_); /* the order by a barrier is not seen by TSan */
        for (int worker = 0; worker < Postoffice::GetServer()->num_workers(); worker++) {
            for (Key key : keys) {
                SArray<Key> one{key};
                SArray<char> buffer(kBytes);
                server_->RegisterRecvBufferWithRank(worker, one, buffer, SArray<int>{kBytes});
                buffers_[{Postoffice::WorkerRankToID(worker), key}] = buffer;
            }
        }
    }
    ~Instance()
    {
        std::lock_guard<std::mutex> lock(mutex_);
        CHECK_GT(pushes_, 0) << ": instance " << index_;
    }

  private:
    void Handle(const KVMeta &meta, const KVPairs<char> &data)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        KVPairs<char> &kept = kept_[{meta.sender, data.keys[0]}];
        CHECK_EQ(meta.key, data.keys[0]);
        CHECK_EQ(meta.val_len, kBytes);
        if (!meta.push) {
            server_->Response(meta, kept);
            return;
        }
        pushes_++;
        CHECK(data.vals.size() == kBytes && data.lens[0] == kBytes);
        CHECK_EQ(data.vals.dst_device_id_, 0);
        const auto buffer = buffers_.find({meta.sender, data.keys[0]});
        CHECK(buffers_.empty() ||
              (buffer != buffers_.end() && buffer->second.data() == data.vals.data()))
            << ": the push is in the buffer that was registered";
        kept.keys.CopyFrom(data.keys);
        kept.vals.CopyFrom(data.vals);
        kept.lens.CopyFrom(data.lens);
        kept.vals[0] = static_cast<char>('0' + index_);
        server_->Response(meta);
    }

    const int index_;
    KVServer<char> *const server_; /* as the fork's programs: never deleted */
    std::mutex mutex_;
    int pushes_ = 0;
    std::map<std::pair<int, Key>, SArray<char>> buffers_;
    std::map<std::pair<int, Key>, KVPairs<char>> kept_;
};

void Worker(int instance)
{
    Postoffice *const office = Postoffice::GetWorker(instance);
    const int rank = Postoffice::GetWorker()->my_rank() / office->group_size();
    CHECK_EQ(office->my_rank(), rank * office->group_size() + instance);
    KVWorker<char> kv(0, 0, instance);
    const auto ranges = office->GetServerKeyRanges();
    CHECK_EQ(static_cast<int>(ranges.size()), office->num_servers());
    std::vector<int> timestamps;
    std::vector<SArray<char>> results;
    std::atomic<int> called{0};
    for (int round = 0; round < kRounds; round++) {
        results.clear();
        timestamps.clear();
        for (const Range &range : ranges) {
            for (int i = 0; i < kKeys; i++) {
                SArray<Key> keys{range.begin() + static_cast<Key>(i)};
                SArray<char> values(kBytes, static_cast<char>(round * 10 + rank + i));
                SArray<int> lens{kBytes};
                kv.Wait(kv.ZPush(keys, values, lens, 0, [&] { called++; }));
                SArray<char> pulled(kBytes);
                results.push_back(pulled);
                timestamps.push_back(kv.ZPull(keys, &pulled, &lens));
            }
        }
        for (int timestamp : timestamps) {
            kv.Wait(timestamp);
        }
        for (size_t i = 0; i < results.size(); i++) {
            const char expected =
                static_cast<char>(round * 10 + rank + static_cast<int>(i) % kKeys);
            CHECK_EQ(results[i][0], static_cast<char>('0' + instance)) << ": by that instance";
            CHECK(results[i][1] == expected && results[i][kBytes - 1] == expected);
        }
    }
    CHECK_EQ(called.load(), kRounds * kKeys * static_cast<int>(ranges.size()));
}

} // namespace

int main(int argc, char **argv)
{
    const Node::Role role = GetRole(CHECK_NOTNULL(Environment::Get()->find("DMLC_ROLE")));
    const int rank = GetEnv("DMLC_RANK", -1);
    const bool registers = argc > 1 && std::string(argv[1]) == "buffers";
    StartPS(0, role, rank, true, argv[0]);
    bool ended = false;
    RegisterExitCallback([&] { ended = true; });
    std::vector<std::unique_ptr<Instance>> instances;
    if (role == Node::SERVER || role == Node::JOINT) {
        Postoffice *const office = Postoffice::GetServer();
        CHECK(IsServer() && office->is_server());
        CHECK(rank == -1 || MyRank() == rank);
        std::vector<Key> keys;
        for (int i = 0; i < kKeys; i++) {
            keys.push_back(office->GetServerKeyRanges()[static_cast<size_t>(MyRank())].begin() +
                           static_cast<Key>(i));
        }
        for (int i = 0; i < office->group_size(); i++) {
            instances.emplace_back(new Instance(i));
            if (registers) {
                instances.back()->Register(keys);
            }
        }
        office->Barrier(0, kServerGroup);
    }
    if (registers && role == Node::SERVER) {
        Postoffice::GetServer()->Barrier(0, kServerGroup + kWorkerGroup);
    }
    if (role == Node::WORKER || role == Node::JOINT) {
        CHECK(Postoffice::GetWorker()->is_worker());
        if (registers) {
            Postoffice::GetWorker()->Barrier(0, kServerGroup + kWorkerGroup);
        }
        std::vector<std::thread> threads;
        for (int i = 0; i < Postoffice::GetWorker()->group_size(); i++) {
            threads.emplace_back(Worker, i);
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        Postoffice::GetWorker()->Barrier(0, kWorkerGroup);
    }
    Finalize(0, role, true);
    CHECK(ended);
    std::cout << "as expected" << std::endl;
    return 0;
}
