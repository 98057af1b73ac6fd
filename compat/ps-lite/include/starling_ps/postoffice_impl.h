/* The functions of Postoffice that take more than a line. */
#ifndef STARLING_PS_POSTOFFICE_IMPL_H
#define STARLING_PS_POSTOFFICE_IMPL_H

#include "postoffice.h"

namespace ps
{

inline void Postoffice::Init(Node::Role role)
{
    static std::mutex mutex;
    std::lock_guard<std::mutex> lock(mutex);
    Postoffice *const first = Get();
    if (first->started_) {
        return;
    }
    const int group_size = role == Node::SCHEDULER ? 1 : GetEnv("DMLC_GROUP_SIZE", 1);
    CHECK_GE(group_size, 1) << ": DMLC_GROUP_SIZE";
    for (Node::Role each : {Node::SERVER, Node::WORKER}) {
        if (role != each && role != Node::JOINT) {
            continue;
        }
        /* With role joint, the process's first postoffice is the server's. */
        Postoffice *head =
            role == Node::JOINT && each == Node::WORKER ? new Postoffice(0, nullptr) : first;
        All(each).push_back(head);
        for (int i = 1; i < group_size; i++) {
            All(each).push_back(new Postoffice(i, head));
        }
        for (Postoffice *office : All(each)) {
            office->role_ = each;
        }
    }
    std::vector<Postoffice *> offices = All(Node::SERVER);
    offices.insert(offices.end(), All(Node::WORKER).begin(), All(Node::WORKER).end());
    if (role == Node::SCHEDULER) {
        first->role_ = role;
        offices.push_back(first);
    }
    for (Postoffice *office : offices) {
        office->group_size_ = GetEnv("DMLC_GROUP_SIZE", 1) < 1 ? 1 : GetEnv("DMLC_GROUP_SIZE", 1);
        office->num_workers_ = office->ReadCount("DMLC_NUM_WORKER");
        office->num_servers_ = office->ReadCount("DMLC_NUM_SERVER");
        office->started_ = true;
    }
}

inline Postoffice *Postoffice::Find(Node::Role role, int instance)
{
    const std::vector<Postoffice *> &all = All(role);
    const char *name = role == Node::SERVER ? "server" : "worker";
    CHECK(!all.empty()) << ": this process is no " << name << ", or has not been started";
    CHECK(instance >= 0 && static_cast<size_t>(instance) < all.size())
        << ": instance " << instance << " of a " << name << " with " << all.size()
        << " (DMLC_GROUP_SIZE)";
    return all[static_cast<size_t>(instance)];
}

inline void Postoffice::OnMessage(void *ctx, const sl_kv_message *message, bool is_request)
{
    Postoffice *const office = static_cast<Postoffice *>(ctx);
    auto mail = std::make_shared<starling::Mail>();
    if (message->bytes < sizeof mail->label) {
        LOG(WARNING) << "dropped a message of " << message->bytes << " bytes: it has no label";
        return;
    }
    const char *bytes = static_cast<const char *>(message->body);
    std::memcpy(&mail->label, bytes, sizeof mail->label);
    mail->body.assign(bytes + sizeof mail->label, message->bytes - sizeof mail->label);
    mail->message = *message;
    mail->message.body = nullptr;
    mail->is_request = is_request;
    /* A request to a server or the scheduler goes to the customer that has the number of the app.
     */
    const bool by_app = is_request && office->role_ != Node::WORKER;
    const int customer_id = by_app ? mail->label.app_id : mail->label.customer_id;
    if (!office->Deliver(mail->label.app_id, customer_id,
                         [mail](Customer *customer) { customer->TakeMail(mail); })) {
        LOG(WARNING) << "dropped a message for app " << mail->label.app_id << ", customer "
                     << customer_id << ": too many wait for it to begin";
    }
}

inline void Postoffice::StartMember(int customer_id, Node::Role role, int rank, bool barrier)
{
    CHECK_GE(rank, -1);
    CHECK(started_ && role_ == role);
    {
        std::lock_guard<std::mutex> lock(members_mutex_);
        CHECK(role == Node::WORKER || members_.empty())
            << ": only a worker can start a second customer";
        CHECK(members_.emplace(customer_id, nullptr).second)
            << ": customer " << customer_id << " has been started already";
        preferred_rank_ = rank;
    }
    sl_kv_handler handler = {};
    handler.handle = starling::HandleRequest;
    handler.whole_bytes = UINT64_MAX;
    auto member = std::make_shared<starling::Member>(
        role, rank, &handler, [](void *ctx, const sl_kv_message *m) { OnMessage(ctx, m, true); },
        [](void *ctx, const sl_kv_message *m) { OnMessage(ctx, m, false); }, this);
    {
        std::lock_guard<std::mutex> lock(members_mutex_);
        members_[customer_id] = member;
    }
    if (barrier) {
        Barrier(customer_id, kScheduler + kServerGroup + kWorkerGroup);
    }
}

inline std::shared_ptr<starling::Member> Postoffice::MemberOf(int customer_id) const
{
    const Postoffice *office = first_ == nullptr ? this : first_;
    std::lock_guard<std::mutex> lock(office->members_mutex_);
    std::shared_ptr<starling::Member> found;
    for (const auto &each : office->members_) {
        if (found == nullptr || each.first == customer_id) {
            found = each.second;
        }
    }
    CHECK(found != nullptr) << ": the process has not been started, or has ended";
    return found;
}

inline void Postoffice::Finalize(int customer_id, bool barrier)
{
    CHECK(first_ == nullptr) << ": only instance 0 ends a process";
    if (barrier) {
        Barrier(customer_id, kScheduler + kServerGroup + kWorkerGroup);
    }
    std::shared_ptr<starling::Member> member;
    {
        std::lock_guard<std::mutex> lock(members_mutex_);
        const auto it = members_.find(customer_id);
        CHECK(it != members_.end() && it->second != nullptr)
            << ": customer " << customer_id << " has not been started";
        member = it->second;
        members_.erase(it);
    }
    member->CloseTables();
    if (role_ == Node::WORKER) { /* callbacks of the last requests */
        std::lock_guard<std::mutex> lock(customers_mutex_);
        for (const auto &each : customers_) {
            each.second->Flush();
        }
    }
    member->Close(barrier);
    if (customer_id == 0 && exit_callback_) {
        exit_callback_();
    }
}

inline void Postoffice::Barrier(int customer_id, int group)
{
    const int own = role_ == Node::WORKER   ? kWorkerGroup
                    : role_ == Node::SERVER ? kServerGroup
                                            : kScheduler;
    CHECK(group > 0 && group <= kScheduler + kServerGroup + kWorkerGroup)
        << ": barrier of group " << group << ": accepts sums of 1 (the scheduler), 2 (servers), "
        << "4 (workers)";
    CHECK(group & own) << ": barrier of group " << group << ": this " << role_str()
                       << " does not belong to it";
    const std::string name = "ps/" + std::to_string(group);
    const std::shared_ptr<starling::Member> member = MemberOf(customer_id);
    CHECK_EQ(sl_kv_barrier_of(member->kv(), name.c_str(), static_cast<uint32_t>(group),
                              starling::kBarrierMs),
             0)
        << ": " << sl_last_error();
}

inline const std::vector<Range> &Postoffice::GetServerKeyRanges()
{
    std::lock_guard<std::mutex> lock(ranges_mutex_);
    if (ranges_.empty()) {
        /* A server is one shard, unless it was not started by this library's header. */
        const std::shared_ptr<starling::Member> member = MemberOf(0);
        sl_kv *const kv = member->kv();
        const uint32_t servers = static_cast<uint32_t>(num_servers_);
        const uint32_t shards = sl_kv_server_count(kv);
        CHECK(servers > 0 && shards % servers == 0)
            << ": " << shards << " shards on " << servers << " servers";
        for (uint32_t i = 0; i < servers; i++) {
            uint64_t first, last, unused;
            sl_kv_server_range(kv, i * (shards / servers), &first, &unused);
            sl_kv_server_range(kv, (i + 1) * (shards / servers) - 1, &unused, &last);
            ranges_.push_back(Range(first, last == kMaxKey ? last : last + 1));
        }
    }
    return ranges_;
}

inline std::vector<int> Postoffice::GetNodeIDs(int id) const
{
    std::vector<int> ids;
    if (id >= 8) {
        const int count = id % 2 == 0 ? num_server_instances() : num_worker_instances();
        CHECK_LT(IDtoRank(id), count) << ": there is no node " << id;
        return {id};
    }
    CHECK(id > 0) << ": there is no group " << id;
    for (int i = 0; (id & kWorkerGroup) && i < num_worker_instances(); i++) {
        ids.push_back(WorkerRankToID(i));
    }
    for (int i = 0; (id & kServerGroup) && i < num_server_instances(); i++) {
        ids.push_back(ServerRankToID(i));
    }
    if (id & kScheduler) {
        ids.push_back(kScheduler);
    }
    return ids;
}

inline void Postoffice::AddCustomer(Customer *customer)
{
    std::lock_guard<std::mutex> lock(customers_mutex_);
    const uint64_t id = IdOf(customer->app_id(), customer->customer_id());
    CHECK(customers_.emplace(id, customer).second)
        << ": customer " << customer->customer_id() << " of app " << customer->app_id()
        << " exists already";
    auto kept = parked_.begin();
    for (auto &each : parked_) {
        if (each.first == id) {
            each.second(customer);
        } else {
            *kept++ = std::move(each);
        }
    }
    parked_.erase(kept, parked_.end());
}

inline void Postoffice::RemoveCustomer(Customer *customer)
{
    std::lock_guard<std::mutex> lock(customers_mutex_);
    customers_.erase(IdOf(customer->app_id(), customer->customer_id()));
}

inline bool Postoffice::Deliver(int app_id, int customer_id, std::function<void(Customer *)> task)
{
    std::lock_guard<std::mutex> lock(customers_mutex_);
    const uint64_t id = IdOf(app_id, customer_id);
    const auto customer = customers_.find(id);
    if (customer != customers_.end()) {
        task(customer->second);
        return true;
    }
    if (parked_.size() >= starling::kParkedMax) {
        return false;
    }
    parked_.emplace_back(id, std::move(task));
    return true;
}

/* Of the process: functions of both headers. */
inline int NumWorkers()
{
    return Postoffice::Get()->num_workers();
}
inline int NumServers()
{
    return Postoffice::Get()->num_servers();
}
inline bool IsScheduler()
{
    return Postoffice::Get()->is_scheduler();
}

} // namespace ps
#endif
