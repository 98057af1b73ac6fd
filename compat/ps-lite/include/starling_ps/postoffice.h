/* The members of the job in this process: start, end, barriers, ranks, and the customers to which
 * requests and messages go. Both forks of ps-lite use this class; they differ in the calls that
 * start it, in their ps/ps.h.
 *
 * Any thread, once started. */
#ifndef STARLING_PS_POSTOFFICE_H
#define STARLING_PS_POSTOFFICE_H

#include <limits>
#include <unordered_map>

#include "customer.h"
#include "member.h"
#include "sarray.h"

namespace ps
{

using Key = uint64_t;
static const Key kMaxKey = std::numeric_limits<Key>::max();
/* Groups of nodes; sums of them are groups too. */
static const int kScheduler = SL_KV_SCHEDULER_GROUP;
static const int kServerGroup = SL_KV_SERVER_GROUP;
static const int kWorkerGroup = SL_KV_WORKER_GROUP;

namespace starling
{

/* What precedes the body of a message. */
struct Label {
    int32_t app_id, customer_id, timestamp;
};

/* A message as received. `message` refers to no memory. */
struct Mail {
    sl_kv_message message;
    Label label;
    std::string body;
    bool is_request;
};

static const size_t kParkedMax = 65536;

inline int HandleRequest(void *, const sl_kv_request *request);

} // namespace starling

class Postoffice
{
  public:
    using Callback = std::function<void()>;

    /* The postoffice of this process; with role joint, that of its server. */
    static Postoffice *Get()
    {
        static Postoffice *const office = new Postoffice; /* lives until the process ends */
        return office;
    }
    static Postoffice *GetScheduler() { return Get()->is_scheduler() ? Get() : nullptr; }
    static Postoffice *GetServer(int instance = 0)
    {
        return Get()->is_scheduler() ? Get() : Find(Node::SERVER, instance);
    }
    static Postoffice *GetWorker(int instance = 0) { return Find(Node::WORKER, instance); }

    /* Joins the job as `role`, which is not JOINT. A second customer of a worker is one more worker
     * of the job. rank: -1: in order of arrival. */
    void StartMember(int customer_id, Node::Role role, int rank, bool barrier);
    /* Creates the postoffices of a process; the first call counts. */
    static void Init(Node::Role role);
    /* Of the member that the customer has started; that of customer 0 runs the exit callback. */
    void Finalize(int customer_id, bool barrier = true);
    void Barrier(int customer_id, int group);
    void RegisterExitCallback(const Callback &callback) { exit_callback_ = callback; }

    const std::vector<Range> &GetServerKeyRanges();
    /* The ids of a group's nodes, or the id itself. */
    std::vector<int> GetNodeIDs(int id) const;
    /* Refused: the scheduler names expired processes in the errors of those that wait for them. */
    std::vector<int> GetDeadNodes(int = 60)
    {
        LOG(FATAL) << "GetDeadNodes is not supported: waits and barriers fail when a process dies";
        return {};
    }

    static int WorkerRankToID(int rank) { return rank * 2 + 9; }
    static int ServerRankToID(int rank) { return rank * 2 + 8; }
    static int IDtoRank(int id) { return id < 8 ? 0 : (id - 8) / 2; }
    int GroupWorkerRankToInstanceID(int rank, int instance) const
    {
        return WorkerRankToID(rank * group_size_ + instance);
    }
    int GroupServerRankToInstanceID(int rank, int instance) const
    {
        return ServerRankToID(rank * group_size_ + instance);
    }
    int InstanceIDtoGroupRank(int id) const { return IDtoRank(id) / group_size_; }
    int group_size() const { return group_size_; }
    int num_workers() const { return num_workers_; }
    int num_servers() const { return num_servers_; }
    int num_worker_instances() const { return num_workers_ * group_size_; }
    int num_server_instances() const { return num_servers_ * group_size_; }
    /* Of this instance in its role. */
    int my_rank() const { return MemberOf(0)->rank() * group_size_ + instance_; }
    int preferred_rank() const { return preferred_rank_; }
    int is_worker() const { return started_ && role_ == Node::WORKER; }
    int is_server() const { return started_ && role_ == Node::SERVER; }
    int is_scheduler() const { return started_ && role_ == Node::SCHEDULER; }
    std::string role_str() const
    {
        return !started_               ? ""
               : role_ == Node::WORKER ? "worker"
               : role_ == Node::SERVER ? "server"
                                       : "scheduler";
    }
    int verbose() const { return GetEnv("PS_VERBOSE", 0); }
    /* A process that replaces an expired one is not told apart. */
    bool is_recovery() const { return false; }

    void AddCustomer(Customer *customer);
    void RemoveCustomer(Customer *customer);
    Customer *GetCustomer(int app_id, int customer_id) const
    {
        std::lock_guard<std::mutex> lock(customers_mutex_);
        const auto it = customers_.find(IdOf(app_id, customer_id));
        return it == customers_.end() ? nullptr : it->second;
    }
    /* Passes a task to a customer, at once or when it is added. False: too many wait for it. */
    bool Deliver(int app_id, int customer_id, std::function<void(Customer *)> task);

    /* Returns the member that serves the customer: that of its own Start, else that of customer 0.
     */
    std::shared_ptr<starling::Member> MemberOf(int customer_id) const;

  private:
    Postoffice() = default;
    explicit Postoffice(int instance, Postoffice *first) : instance_(instance), first_(first) {}
    static Postoffice *Find(Node::Role role, int instance);
    static uint64_t IdOf(int app_id, int customer_id)
    {
        return static_cast<uint64_t>(static_cast<uint32_t>(app_id)) << 32 |
               static_cast<uint32_t>(customer_id);
    }
    static std::vector<Postoffice *> &All(Node::Role role)
    {
        /* Never freed: threads of the program may use them until the process has ended. */
        static auto *const servers = new std::vector<Postoffice *>;
        static auto *const workers = new std::vector<Postoffice *>;
        return role == Node::SERVER ? *servers : *workers;
    }
    static void OnMessage(void *ctx, const sl_kv_message *message, bool is_request);
    int ReadCount(const char *name) const
    {
        const int count = std::atoi(CHECK_NOTNULL(Environment::Get()->find(name)));
        CHECK_GE(count, 0) << ": " << name;
        return count;
    }

    bool started_ = false;
    Node::Role role_ = Node::SCHEDULER;
    int instance_ = 0, group_size_ = 1, num_workers_ = 0, num_servers_ = 0, preferred_rank_ = -1;
    Postoffice *first_ = nullptr; /* of the instances of one role, that which has the members */
    Callback exit_callback_;
    mutable std::mutex members_mutex_;
    std::map<int, std::shared_ptr<starling::Member>> members_; /* by customer */
    std::mutex ranges_mutex_;
    std::vector<Range> ranges_;

    mutable std::mutex customers_mutex_;
    std::unordered_map<uint64_t, Customer *> customers_;
    std::vector<std::pair<uint64_t, std::function<void(Customer *)>>> parked_;
};

#define PS_VLOG(level) LOG_IF(INFO, (level) <= ::ps::Postoffice::Get()->verbose())

} // namespace ps

#include "postoffice_impl.h"
#endif
