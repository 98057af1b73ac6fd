/* Messages of a number and a text between nodes, each with an answer. */
#ifndef STARLING_PS_SIMPLE_APP_H
#define STARLING_PS_SIMPLE_APP_H

#include <chrono>
#include <tuple>

#include "postoffice.h"

namespace ps
{

struct SimpleData {
    int head;
    std::string body;
    int sender;    /* id of a node */
    int timestamp; /* of the sender */
    int customer_id;
};

/* Any thread. Handlers run on the customer's thread. */
class SimpleApp
{
  public:
    using Handle = std::function<void(const SimpleData &data, SimpleApp *app)>;

    SimpleApp(int app_id, int customer_id, Postoffice *postoffice = nullptr)
    {
        Begin(app_id, customer_id, postoffice == nullptr ? Postoffice::Get() : postoffice);
    }
    SimpleApp(const SimpleApp &) = delete;
    void operator=(const SimpleApp &) = delete;
    virtual ~SimpleApp() { End(); }

    /* Sends to a node or a group, this node included if it belongs to it. Returns the timestamp. */
    virtual int Request(int head, const std::string &body, int receiver)
    {
        const int count = CountOf(receiver);
        const int timestamp = obj_->NewRequest(count);
        const std::string bytes = Labelled(obj_->customer_id(), timestamp, body);
        sl_kv_node node = {};
        if (receiver >= 8) {
            node.role = receiver % 2 == 0 ? SL_KV_SERVER : SL_KV_WORKER;
            node.rank = static_cast<uint32_t>(postoffice_->InstanceIDtoGroupRank(receiver));
        }
        std::lock_guard<std::mutex> lock(messages_mutex_);
        uint64_t sent;
        const int err =
            sl_kv_message_send(Kv(), receiver >= 8 ? 0 : static_cast<uint32_t>(receiver),
                               receiver >= 8 ? &node : nullptr, head, bytes.data(),
                               static_cast<uint32_t>(bytes.size()), &sent);
        if (err != 0) {
            obj_->AddResponse(timestamp, count);
            LOG(FATAL) << "request to node " << receiver << ": " << sl_last_error();
        }
        sent_[timestamp] = Sent{sent, count};
        return timestamp;
    }
    /* Waits until all receivers have answered and the handler has seen the answers. Throws
     * dmlc::Error when one does not in time, or is dead. */
    virtual void Wait(int timestamp)
    {
        uint64_t sent = 0;
        {
            std::lock_guard<std::mutex> lock(messages_mutex_);
            const auto it = sent_.find(timestamp);
            sent = it == sent_.end() ? 0 : it->second.timestamp;
        }
        if (sent != 0) {
            CHECK_EQ(sl_kv_wait(Kv(), sent), 0) << ": " << sl_last_error();
        }
        obj_->WaitRequest(timestamp);
    }
    /* Answers a request, once, in its handler or later. */
    virtual void Response(const SimpleData &request, const std::string &body = "")
    {
        sl_kv_message message;
        {
            std::lock_guard<std::mutex> lock(messages_mutex_);
            const auto it = received_.find(IdOf(request));
            CHECK(it != received_.end())
                << ": app " << obj_->app_id() << " answers request " << request.timestamp
                << " of node " << request.sender << " twice, or has never received it";
            message = it->second;
            received_.erase(it);
        }
        const std::string bytes = Labelled(request.customer_id, request.timestamp, body);
        if (sl_kv_message_answer(Kv(), &message, request.head, bytes.data(),
                                 static_cast<uint32_t>(bytes.size())) != 0) {
            LOG(WARNING) << "answer to node " << request.sender << ": " << sl_last_error();
        }
    }

    virtual void set_request_handle(const Handle &handle) { SetHandle(&request_handle_, handle); }
    virtual void set_response_handle(const Handle &handle) { SetHandle(&response_handle_, handle); }
    virtual Customer *get_customer() { return obj_; }

  protected:
    /* For a class that calls Begin itself, and End when it is destroyed. */
    SimpleApp() = default;
    void Begin(int app_id, int customer_id, Postoffice *postoffice,
               Customer::RequestFn on_request = nullptr)
    {
        postoffice_ = postoffice;
        member_ = postoffice->MemberOf(customer_id);
        obj_ = new Customer(
            app_id, customer_id, [this](const starling::Mail &mail) { TakeMail(mail); },
            std::move(on_request));
        postoffice_->AddCustomer(obj_);
    }
    void End()
    {
        if (obj_ != nullptr) {
            postoffice_->RemoveCustomer(obj_);
            delete obj_;
            obj_ = nullptr;
        }
    }
    sl_kv *Kv() const
    {
        CHECK(member_->kv() != nullptr) << ": the process has left the job";
        return member_->kv();
    }

    Customer *obj_ = nullptr;
    Postoffice *postoffice_ = nullptr;
    std::shared_ptr<starling::Member> member_;

  private:
    struct Sent {
        uint64_t timestamp; /* of the library */
        int left;           /* answers */
    };
    using RequestId = std::tuple<int, int, int>;

    static RequestId IdOf(const SimpleData &data)
    {
        return RequestId(data.timestamp, data.sender, data.customer_id);
    }
    int CountOf(int receiver) const
    {
        CHECK(!postoffice_->GetNodeIDs(receiver).empty())
            << ": group " << receiver << " has no node";
        return receiver >= 8 ? 1
                             : ((receiver & kWorkerGroup) ? postoffice_->num_workers() : 0) +
                                   ((receiver & kServerGroup) ? postoffice_->num_servers() : 0) +
                                   ((receiver & kScheduler) ? 1 : 0);
    }
    std::string Labelled(int customer_id, int timestamp, const std::string &body) const
    {
        const starling::Label label = {obj_->app_id(), customer_id, timestamp};
        CHECK_LE(sizeof label + body.size(), SL_KV_MESSAGE_BYTES)
            << ": a message of " << body.size() << " bytes: accepts up to "
            << SL_KV_MESSAGE_BYTES - sizeof label;
        return std::string(reinterpret_cast<const char *>(&label), sizeof label) + body;
    }
    void SetHandle(std::shared_ptr<Handle> *handle, const Handle &value)
    {
        CHECK(value) << ": the handler is empty";
        std::lock_guard<std::mutex> lock(handles_mutex_);
        *handle = std::make_shared<Handle>(value);
        handles_cond_.notify_all();
    }
    /* A program sets its handler right after it creates the app: what has come before waits a
     * moment for it. */
    std::shared_ptr<Handle> HandleFor(bool is_request)
    {
        std::unique_lock<std::mutex> lock(handles_mutex_);
        if (is_request && !waited_) {
            waited_ = true;
            handles_cond_.wait_for(lock, std::chrono::milliseconds(200),
                                   [this] { return request_handle_ != nullptr; });
        }
        return is_request ? request_handle_ : response_handle_;
    }
    void TakeMail(const starling::Mail &mail)
    {
        SimpleData data;
        const int rank = static_cast<int>(mail.message.rank);
        data.head = mail.message.head;
        data.body = mail.body;
        data.sender = mail.message.role == SL_KV_SCHEDULER ? kScheduler
                      : mail.message.role == SL_KV_SERVER
                          ? postoffice_->GroupServerRankToInstanceID(rank, 0)
                          : postoffice_->GroupWorkerRankToInstanceID(rank, 0);
        data.timestamp = mail.label.timestamp;
        data.customer_id = mail.label.customer_id;
        if (mail.is_request) {
            std::lock_guard<std::mutex> lock(messages_mutex_);
            if (received_.size() >= starling::kParkedMax) {
                received_.erase(received_.begin());
            }
            received_[IdOf(data)] = mail.message;
        }
        const std::shared_ptr<Handle> handle = HandleFor(mail.is_request);
        if (handle != nullptr) {
            (*handle)(data, this);
        } else if (mail.is_request) {
            Response(data);
        }
        if (!mail.is_request) {
            CountAnswer(data.timestamp);
        }
    }
    void CountAnswer(int timestamp)
    {
        {
            std::lock_guard<std::mutex> lock(messages_mutex_);
            const auto it = sent_.find(timestamp);
            if (it == sent_.end()) {
                return;
            }
            if (--it->second.left == 0) {
                sent_.erase(it);
            }
        }
        obj_->AddResponse(timestamp);
    }

    std::mutex handles_mutex_, messages_mutex_;
    std::condition_variable handles_cond_;
    bool waited_ = false;
    std::shared_ptr<Handle> request_handle_, response_handle_;
    std::map<int, Sent> sent_;                    /* that are not answered, by timestamp */
    std::map<RequestId, sl_kv_message> received_; /* that are not answered */
};

} // namespace ps
#endif
