/* A server whose handler gets the pushes and pulls of an app. */
#ifndef STARLING_PS_KV_SERVER_H
#define STARLING_PS_KV_SERVER_H

#include "incoming.h"
#include "simple_app.h"

namespace ps
{

/* The handler runs on the customer's thread, one request at a time. It answers each request once,
 * by Response, at once or later from any thread; a second answer throws dmlc::Error. */
template <typename Val> class KVServer : public SimpleApp
{
  public:
    using ReqHandle =
        std::function<void(const KVMeta &meta, const KVPairs<Val> &data, KVServer *server)>;

    explicit KVServer(int app_id, bool is_scheduler = false, int instance = 0)
        : instance_idx_(instance)
    {
        Postoffice *const office =
            is_scheduler ? Postoffice::GetScheduler() : Postoffice::GetServer(instance);
        CHECK(office != nullptr) << ": this process is not the scheduler";
        Begin(app_id, app_id, office, [this](const starling::Incoming &in) { Process(in); });
    }
    virtual ~KVServer()
    {
        End();
        for (const auto &each : pending_) {
            LOG(WARNING) << "app " << each.second.app_id << " has never answered the "
                         << (each.second.has_pull ? "pull" : "push") << " of key "
                         << each.second.key << " from node " << each.second.sender;
            sl_kv_answer answer = {};
            answer.err = SL_ERR_CANCELLED;
            sl_kv_reply(each.second.token, &answer);
        }
    }

    using SimpleApp::set_request_handle;
    void set_request_handle(const ReqHandle &handle)
    {
        CHECK(handle) << ": the handler is empty";
        std::lock_guard<std::mutex> lock(mutex_);
        handle_ = std::make_shared<ReqHandle>(handle);
        handle_cond_.notify_all();
    }

    using SimpleApp::Response;
    /* The arrays are sent from their memory, and must stay unmodified until then. A pull is
     * answered with as many values as it asks for. */
    void Response(const KVMeta &meta, const KVPairs<Val> &data = KVPairs<Val>())
    {
        Pending pending;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            const auto it = pending_.find(meta.timestamp);
            CHECK(it != pending_.end())
                << ": app " << obj_->app_id() << " answers request " << meta.timestamp
                << " of node " << meta.sender << " twice, or has never received it";
            pending = it->second;
            pending_.erase(it);
        }
        Answer(pending, data);
    }

    /* Pushes of the one key from this worker are copied into `vals`, and shown to the handler
     * there: the handler must be done with one before the worker pushes the next. */
    void RegisterRecvBufferWithRank(int worker_rank, SArray<Key> &keys, const SArray<Val> &vals,
                                    const SArray<int> &lens = {}, int cmd = 0)
    {
        RegisterRecvBuffer(postoffice_->GroupWorkerRankToInstanceID(worker_rank, instance_idx_),
                           keys, vals, lens, cmd);
    }
    void RegisterRecvBuffer(int worker_id, SArray<Key> &keys, const SArray<Val> &vals,
                            const SArray<int> & = {}, int = 0)
    {
        CHECK_EQ(keys.size(), 1U) << ": a receive buffer is for one key";
        std::lock_guard<std::mutex> lock(mutex_);
        buffers_[std::make_pair(postoffice_->InstanceIDtoGroupRank(worker_id), keys[0])] = vals;
    }

    const int instance_idx_;

  private:
    using Name = std::tuple<int, int, Key, uint32_t>; /* sender, customer, first key, keys */
    struct Pending {
        sl_kv_token *token;
        Name name;
        Key key;
        int app_id, sender;
        uint32_t key_count, value_bytes;
        uint64_t value_count;
        bool has_pull, lens_wanted;
    };
    /* What an answer refers to. */
    struct Kept {
        SArray<Val> vals;
        std::vector<uint32_t> lens;
    };

    void Answer(const Pending &pending, const KVPairs<Val> &data)
    {
        sl_kv_answer answer = {};
        if (!pending.has_pull) {
            sl_kv_reply(pending.token, &answer);
            return;
        }
        auto *kept = new Kept{data.vals, {}};
        answer.values = kept->vals.data();
        answer.value_count = kept->vals.size() * sizeof(Val) / pending.value_bytes;
        Remember(pending, data);
        answer.err = Fits(pending, data, answer.value_count) ? 0 : SL_ERR_INVALID;
        if (pending.lens_wanted && !data.lens.empty()) {
            for (int len : data.lens) {
                kept->lens.push_back(static_cast<uint32_t>(static_cast<size_t>(len) * sizeof(Val) /
                                                           pending.value_bytes));
            }
            answer.lens = kept->lens.data();
        }
        answer.sent = [](void *ctx) { delete static_cast<Kept *>(ctx); };
        answer.ctx = kept;
        sl_kv_reply(pending.token, &answer);
    }

    /* A sender that does not know the lengths asks again if they exceed its room: the handler must
     * not see that. */
    void Remember(const Pending &pending, const KVPairs<Val> &data)
    {
        const uint64_t room = pending.value_count / pending.key_count;
        uint64_t longest = data.vals.size() / pending.key_count;
        for (int len : data.lens) {
            longest = std::max(longest, static_cast<uint64_t>(len));
        }
        if (pending.lens_wanted && longest * sizeof(Val) / pending.value_bytes > room) {
            std::lock_guard<std::mutex> lock(mutex_);
            if (repeats_.size() >= starling::kParkedMax) {
                repeats_.erase(repeats_.begin());
            }
            repeats_[pending.name] = data;
        }
    }
    bool IsRepeat(const Pending &pending, KVPairs<Val> *data)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        const auto it = repeats_.find(pending.name);
        if (it == repeats_.end() || pending.lens_wanted ||
            it->second.vals.size() * sizeof(Val) != pending.value_count * pending.value_bytes) {
            return false;
        }
        *data = it->second;
        repeats_.erase(it);
        return true;
    }

    /* A worker that asks for too much must not end the server: it gets the error. */
    bool Fits(const Pending &pending, const KVPairs<Val> &data, uint64_t value_count) const
    {
        const bool fits = pending.lens_wanted
                              ? (data.lens.empty() ? data.vals.size() % pending.key_count == 0
                                                   : data.lens.size() == pending.key_count)
                              : value_count == pending.value_count;
        if (!fits) {
            LOG(ERROR) << "app " << obj_->app_id() << " answers " << data.vals.size()
                       << " values and " << data.lens.size() << " lens to a pull of "
                       << pending.key_count << " keys, the first of them " << pending.key
                       << ", from node " << pending.sender << ", which asks for "
                       << pending.value_count * pending.value_bytes / sizeof(Val) << " values";
        }
        return fits;
    }

    void Process(const starling::Incoming &in)
    {
        const sl_kv_request &request = in.request;
        KVMeta meta = {};
        KVPairs<Val> data;
        meta.cmd = static_cast<int>(request.command);
        meta.push = in.has_push;
        meta.pull = in.has_pull;
        meta.sender = postoffice_->WorkerRankToID(request.worker);
        meta.customer_id = in.customer_id;
        meta.key = request.keys[0];
        meta.val_len = static_cast<int>(request.value_count * request.value_bytes / sizeof(Val));
        data.keys.share(in.block, const_cast<Key *>(request.keys), request.key_count);
        const Pending pending = {request.token,
                                 Name(meta.sender, meta.customer_id, meta.key, request.key_count),
                                 meta.key,
                                 obj_->app_id(),
                                 meta.sender,
                                 request.key_count,
                                 request.value_bytes,
                                 request.value_count,
                                 in.has_pull,
                                 request.lens_wanted};
        KVPairs<Val> before;
        if (!in.has_push && IsRepeat(pending, &before)) {
            Answer(pending, before);
            return;
        }
        const bool divides = Load(in, &data);
        std::shared_ptr<ReqHandle> handle;
        {
            std::unique_lock<std::mutex> lock(mutex_);
            handle_cond_.wait_for(lock, std::chrono::milliseconds(STARLING_PS_TIMEOUT_MS),
                                  [this] { return handle_ != nullptr; });
            handle = handle_;
            meta.timestamp = next_++ & INT32_MAX;
            if (handle != nullptr && divides) {
                pending_[meta.timestamp] = pending;
            }
        }
        if (handle != nullptr && divides) {
            (*handle)(meta, data, this);
            return;
        }
        LOG(ERROR) << "app " << obj_->app_id() << " refuses a request of node " << meta.sender
                   << ": " << (divides ? "it has no handler" : "its values are of another type");
        sl_kv_answer answer = {};
        answer.err = SL_ERR_INVALID;
        sl_kv_reply(request.token, &answer);
    }

    /* False: the values are not elements of this type. */
    bool Load(const starling::Incoming &in, KVPairs<Val> *data)
    {
        if (!in.has_push) {
            return true;
        }
        const sl_kv_request &request = in.request;
        const size_t bytes = request.value_count * request.value_bytes;
        int *lens = reinterpret_cast<int *>(const_cast<uint32_t *>(request.lens));
        bool divides = bytes % sizeof(Val) == 0;
        for (uint32_t i = 0; request.value_bytes != sizeof(Val) && i < request.key_count; i++) {
            divides = divides && request.lens[i] * request.value_bytes % sizeof(Val) == 0;
            lens[i] = static_cast<int>(request.lens[i] * request.value_bytes / sizeof(Val));
        }
        if (!divides) {
            return false;
        }
        data->lens.share(in.block, lens, request.key_count);
        char *values = const_cast<char *>(static_cast<const char *>(request.push));
        data->vals.share(in.block, reinterpret_cast<Val *>(values), bytes / sizeof(Val));
        std::lock_guard<std::mutex> lock(mutex_);
        const auto it = buffers_.find(std::make_pair(request.worker, request.keys[0]));
        if (it != buffers_.end() && request.key_count == 1 &&
            it->second.size() >= data->vals.size()) {
            SArray<Val> buffer = it->second.segment(0, data->vals.size());
            std::copy(data->vals.begin(), data->vals.end(), buffer.begin());
            data->vals = buffer;
        }
        return true;
    }

    std::mutex mutex_;
    std::condition_variable handle_cond_;
    std::shared_ptr<ReqHandle> handle_;
    uint32_t next_ = 0;
    std::unordered_map<int, Pending> pending_; /* that are not answered, by timestamp */
    std::map<Name, KVPairs<Val>> repeats_;
    std::map<std::pair<int, Key>, SArray<Val>> buffers_; /* by rank of the worker, and key */
};

/* Adds pushed values up: one value for each key, 0 before the first push. */
template <typename Val> struct KVServerDefaultHandle {
    void operator()(const KVMeta &meta, const KVPairs<Val> &data, KVServer<Val> *server)
    {
        const size_t count = data.keys.size();
        CHECK(!meta.push || data.vals.size() == count)
            << ": " << data.vals.size() << " values of " << count << " keys";
        KVPairs<Val> answer;
        if (meta.pull) {
            answer.keys = data.keys;
            answer.vals.resize(count);
        }
        for (size_t i = 0; i < count; i++) {
            Val &value = store[data.keys[i]];
            if (meta.push) {
                value += data.vals[i];
            }
            if (meta.pull) {
                answer.vals[i] = value;
            }
        }
        server->Response(meta, answer);
    }
    std::unordered_map<Key, Val> store;
};

} // namespace ps
#endif
