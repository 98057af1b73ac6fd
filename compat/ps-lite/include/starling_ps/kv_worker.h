/* A worker that pushes and pulls arrays by ascending keys. */
#ifndef STARLING_PS_KV_WORKER_H
#define STARLING_PS_KV_WORKER_H

#include "kv_pairs.h"
#include "simple_app.h"

namespace ps
{

namespace starling
{

/* One push or pull. It owns all memory that the library reads, and what the caller shares. */
template <typename Val> struct Operation {
    Customer *customer;
    sl_kv *kv;
    int timestamp;
    KVPairs<Val> pushed;
    SArray<Val> pulled;
    SArray<int> pulled_lens;
    std::vector<uint32_t> scaled; /* lens in values of the table */
    std::function<void()> callback;
    /* With lengths that only the servers know: returns room for so many values, or nullptr and the
     * reason in `error`. */
    std::function<Val *(const std::vector<int> &lens, size_t count, std::string *error)> place;
    std::string error;
};

} // namespace starling

/* Any thread. Callbacks run on the customer's thread and must not wait for its requests. A push or
 * pull that fails makes Wait throw dmlc::Error; if it has a callback, which cannot get the error,
 * the process ends with the reason. */
template <typename Val> class KVWorker : public SimpleApp
{
  public:
    using Callback = std::function<void()>;
    using SlicedKVs = starling::SlicedKVs<Val>;
    using Slicer = std::function<void(const KVPairs<Val> &kvs, const std::vector<Range> &ranges,
                                      SlicedKVs *sliced)>;

    KVWorker(int app_id, int customer_id, int instance = 0)
    {
        Begin(app_id, customer_id, Postoffice::GetWorker(instance));
        member_->OpenTable(starling::TableName(app_id, customer_id, instance),
                           starling::Values<Val>::kBytes, &table_);
    }
    /* Waits for its requests. */
    virtual ~KVWorker()
    {
        member_->CloseTable(&table_);
        End();
    }

    /* Copies keys, values and lens; returns the timestamp. */
    int Push(const std::vector<Key> &keys, const std::vector<Val> &vals,
             const std::vector<int> &lens = {}, int cmd = 0, const Callback &cb = nullptr,
             int priority = 0)
    {
        return ZPush(SArray<Key>(keys), SArray<Val>(vals), SArray<int>(lens), cmd, cb, priority);
    }
    /* Uses the arrays in place: they must stay unmodified until the request is complete. */
    int ZPush(const SArray<Key> &keys, const SArray<Val> &vals, const SArray<int> &lens = {},
              int cmd = 0, const Callback &cb = nullptr, int priority = 0)
    {
        auto *operation = NewOperation(keys, cb);
        operation->pushed.vals = vals;
        operation->pushed.lens = lens;
        return Send(operation, cmd, priority);
    }
    /* Fills *vals, and *lens unless it is nullptr. An empty *vals gets the size that the servers
     * say; any other must be long enough. Both must stay where they are until the request is
     * complete. */
    int Pull(const std::vector<Key> &keys, std::vector<Val> *vals, std::vector<int> *lens = nullptr,
             int cmd = 0, const Callback &cb = nullptr, int priority = 0)
    {
        return PullInto(SArray<Key>(keys), vals, lens, cmd, cb, priority);
    }
    int ZPull(const SArray<Key> &keys, SArray<Val> *vals, SArray<int> *lens = nullptr, int cmd = 0,
              const Callback &cb = nullptr, int priority = 0)
    {
        return PullInto(keys, vals, lens, cmd, cb, priority);
    }
    /* The answer has the lengths that were pushed. */
    int PushPull(const std::vector<Key> &keys, const std::vector<Val> &vals, std::vector<Val> *outs,
                 std::vector<int> *lens = nullptr, int cmd = 0, const Callback &cb = nullptr,
                 int priority = 0)
    {
        return PushPullInto(SArray<Key>(keys), SArray<Val>(vals), outs, lens, cmd, cb, priority);
    }
    int ZPushPull(const SArray<Key> &keys, const SArray<Val> &vals, SArray<Val> *outs,
                  SArray<int> *lens = nullptr, int cmd = 0, const Callback &cb = nullptr,
                  int priority = 0)
    {
        return PushPullInto(keys, vals, outs, lens, cmd, cb, priority);
    }
    void Wait(int timestamp) override { SimpleApp::Wait(timestamp); }
    /* The slicer is called for each request. It must leave every key in its server's range, and all
     * keys and values in their order: the library sends them. */
    void set_slicer(const Slicer &slicer)
    {
        CHECK(slicer) << ": the slicer is empty";
        slicer_ = slicer;
    }

  private:
    using Operation = starling::Operation<Val>;
    static const uint32_t kScale = starling::Values<Val>::kScale;

    template <typename T> static SArray<T> View(std::vector<T> *vector)
    {
        return SArray<T>(vector->data(), vector->size());
    }
    template <typename T> static SArray<T> View(SArray<T> *array) { return *array; }

    Operation *NewOperation(const SArray<Key> &keys, const Callback &cb)
    {
        auto *operation = new Operation();
        operation->customer = obj_;
        operation->kv = Kv();
        operation->pushed.keys = keys;
        operation->callback = cb;
        return operation;
    }

    template <typename C, typename D>
    int PullInto(const SArray<Key> &keys, C *vals, D *lens, int cmd, const Callback &cb,
                 int priority)
    {
        CHECK_NOTNULL(vals);
        std::unique_ptr<Operation> operation(NewOperation(keys, cb));
        if (lens != nullptr) {
            operation->pulled_lens = View(lens);
        }
        const SArray<int> &known = operation->pulled_lens;
        uint64_t sum = 0;
        for (int len : known) {
            sum += static_cast<uint64_t>(len);
        }
        const bool fits = known.size() == keys.size() && sum == vals->size();
        if (vals->size() > 0 && (fits || (keys.size() == 1 && lens == nullptr))) {
            operation->pulled = View(vals);
            operation->pushed.lens = known;
            return Send(operation.release(), cmd, priority);
        }
        operation->place = [vals, lens](const std::vector<int> &answered, size_t count,
                                        std::string *error) -> Val * {
            if (vals->empty()) {
                vals->resize(count);
            }
            if (vals->size() < count ||
                (lens != nullptr && !lens->empty() && lens->size() != answered.size())) {
                *error = "the servers answer " + std::to_string(count) + " values of " +
                         std::to_string(answered.size()) + " keys, the buffer is for " +
                         std::to_string(vals->size());
                return nullptr;
            }
            if (lens != nullptr) {
                lens->resize(answered.size());
                std::copy(answered.begin(), answered.end(), lens->begin());
            }
            return vals->data();
        };
        return Send(operation.release(), cmd, priority);
    }

    template <typename C, typename D>
    int PushPullInto(const SArray<Key> &keys, const SArray<Val> &vals, C *outs, D *lens, int cmd,
                     const Callback &cb, int priority)
    {
        CHECK_NOTNULL(outs);
        if (outs->empty()) {
            outs->resize(vals.size());
        }
        CHECK_EQ(outs->size(), vals.size()) << ": the answer has as many values as are pushed";
        std::unique_ptr<Operation> operation(NewOperation(keys, cb));
        operation->pushed.vals = vals;
        operation->pulled = View(outs);
        if (lens != nullptr && lens->empty() && !keys.empty()) {
            lens->resize(keys.size());
            std::fill(lens->begin(), lens->end(), static_cast<int>(vals.size() / keys.size()));
        }
        if (lens != nullptr) {
            operation->pushed.lens = View(lens);
        }
        return Send(operation.release(), cmd, priority);
    }

    int Send(Operation *begun, int cmd, int priority)
    {
        std::unique_ptr<Operation> operation(begun);
        const KVPairs<Val> &pushed = operation->pushed;
        CHECK(table_ != nullptr) << ": the worker has left the job";
        CHECK_LE(pushed.keys.size(), UINT32_MAX);
        CHECK(pushed.lens.empty() || pushed.lens.size() == pushed.keys.size())
            << ": " << pushed.lens.size() << " lens of " << pushed.keys.size() << " keys";
        if (slicer_) {
            const std::vector<Range> &ranges = postoffice_->GetServerKeyRanges();
            SlicedKVs sliced;
            slicer_(pushed, ranges, &sliced);
            starling::CheckSlices(pushed, ranges, sliced);
        }
        const int timestamp = operation->timestamp = obj_->NewRequest(1);
        if (pushed.keys.empty()) {
            Finish(operation.release());
            return timestamp;
        }
        sl_kv_call call = {};
        call.batch.keys = pushed.keys.data();
        call.batch.key_count = static_cast<uint32_t>(pushed.keys.size());
        call.batch.lens =
            pushed.lens.empty() ? nullptr : reinterpret_cast<const uint32_t *>(pushed.lens.data());
        if (kScale > 1 && !pushed.lens.empty()) {
            for (int len : pushed.lens) {
                operation->scaled.push_back(static_cast<uint32_t>(len) * kScale);
            }
            call.batch.lens = operation->scaled.data();
        }
        call.batch.command = static_cast<uint32_t>(cmd);
        call.batch.push = pushed.vals.empty() ? nullptr : pushed.vals.data();
        call.batch.pull = operation->pulled.empty() ? nullptr : operation->pulled.data();
        call.batch.value_count =
            (pushed.vals.empty() ? operation->pulled.size() : pushed.vals.size()) * kScale;
        call.place = operation->place ? Place : nullptr;
        call.priority = priority;
        call.done = Done;
        call.ctx = operation.get();
        uint64_t begun_as;
        if (sl_kv_begin(table_, &call, &begun_as) != 0) {
            obj_->AddResponse(timestamp);
            LOG(FATAL) << sl_last_error();
        }
        (void)operation.release();
        return timestamp;
    }

    /* On the driving thread. */
    static void *Place(void *ctx, const uint32_t *lens, uint64_t value_count)
    {
        Operation *const operation = static_cast<Operation *>(ctx);
        std::vector<int> answered(operation->pushed.keys.size());
        for (size_t i = 0; i < answered.size(); i++) {
            answered[i] = static_cast<int>(lens[i] / kScale);
        }
        return operation->place(answered, value_count / kScale, &operation->error);
    }
    static void Done(void *ctx, uint64_t timestamp, int err)
    {
        Operation *const operation = static_cast<Operation *>(ctx);
        if (err == 0) {
            Finish(operation);
            return;
        }
        /* The reason can be had after this callback. */
        operation->customer->Post([operation, timestamp] {
            std::string reason = operation->error;
            if (reason.empty() && sl_kv_wait(operation->kv, timestamp) != 0) {
                reason = sl_last_error();
            }
            if (operation->callback) {
                LOG(FATAL) << "a request with a callback has failed: " << reason;
            }
            operation->customer->AddFailure(operation->timestamp, std::move(reason));
            delete operation;
        });
    }
    static void Finish(Operation *operation)
    {
        if (!operation->callback) {
            operation->customer->AddResponse(operation->timestamp);
            delete operation;
            return;
        }
        operation->customer->Post([operation] {
            operation->callback();
            operation->customer->AddResponse(operation->timestamp);
            delete operation;
        });
    }

    sl_kv *table_ = nullptr;
    Slicer slicer_;
};

} // namespace ps
#endif
