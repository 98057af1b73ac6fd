/* The interface of BytePS's fork of ps-lite for programs that are compiled unmodified, over
 * starling_kv.h:
 *
 *   g++ program.cc $(pkg-config --cflags --libs starling-ps-lite-byteps)
 *
 * docs/ps-lite.md names what is supported and what differs. C++14, header only. All functions
 * throw dmlc::Error with a sentence when they fail. */
#ifndef STARLING_PS_LITE_BYTEPS_PS_H
#define STARLING_PS_LITE_BYTEPS_PS_H

#include <exception>

#include "../../../ps-lite/include/starling_ps/kv_server.h"
#include "../../../ps-lite/include/starling_ps/kv_worker.h"

namespace ps
{

inline Node::Role GetRole(const std::string &role)
{
    CHECK(role == "scheduler" || role == "server" || role == "worker" || role == "joint")
        << ": role " << role << ": accepts scheduler, server, worker, joint";
    return role == "scheduler" ? Node::SCHEDULER
           : role == "server"  ? Node::SERVER
           : role == "worker"  ? Node::WORKER
                               : Node::JOINT;
}

namespace starling
{

/* Runs both parts of a process with role joint side by side: each waits for the other's barrier. */
template <typename Part> inline void RunParts(Node::Role role, Part part)
{
    if (role != Node::JOINT) {
        part(role);
        return;
    }
    std::exception_ptr failure;
    std::thread server([&] {
        try {
            part(Node::SERVER);
        } catch (...) {
            failure = std::current_exception();
        }
    });
    try {
        part(Node::WORKER);
    } catch (...) {
        server.join();
        throw;
    }
    server.join();
    if (failure) {
        std::rethrow_exception(failure);
    }
}

inline Postoffice *OfficeOf(Node::Role role)
{
    return role == Node::WORKER   ? Postoffice::GetWorker()
           : role == Node::SERVER ? Postoffice::GetServer()
                                  : Postoffice::GetScheduler();
}

} // namespace starling

/* Joins the job as `role`; with JOINT the process is a server and a worker. rank: -1: in order of
 * arrival. Waits until all processes have joined, if `barrier`. DMLC_GROUP_SIZE is the number of
 * instances in a process: they share its rank and connections, each has postoffices and customers
 * of its own. */
inline void StartPS(int customer_id, Node::Role role, int rank, bool barrier,
                    const char *program = nullptr)
{
    dmlc::InitLogging(program == nullptr ? "ps-lite" : program);
    Postoffice::Init(role);
    starling::RunParts(role, [=](Node::Role part) {
        starling::OfficeOf(part)->StartMember(customer_id, part, rank, barrier);
    });
}
/* Waits for all processes, if `barrier`, and leaves the job. */
inline void Finalize(int customer_id, Node::Role role, bool barrier = true)
{
    starling::RunParts(
        role, [=](Node::Role part) { starling::OfficeOf(part)->Finalize(customer_id, barrier); });
}
/* Runs after Finalize of customer 0; with role joint, of the server. */
inline void RegisterExitCallback(const std::function<void()> &callback)
{
    Postoffice::Get()->RegisterExitCallback(callback);
}
/* Of the process; with role joint, of its server. */
inline bool IsServer()
{
    return Postoffice::Get()->is_server();
}
/* Of the process, not of an instance. */
inline int MyRank()
{
    return Postoffice::Get()->my_rank() / Postoffice::Get()->group_size();
}

} // namespace ps
#endif
